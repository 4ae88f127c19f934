package etcdfake

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	errLost   = status.Error(codes.Unavailable, "etcdfake: request or reply lost")
	errBroken = status.Error(codes.Unavailable, "etcdfake: connection broken")
	// errClosing has the text of grpc.ErrClientConnClosing.
	errClosing = status.Error(codes.Canceled, "grpc: the client connection is closing")
)

// leastPause is how long it takes to learn that a call has failed.
// Client.KeepAliveOnce sends again without a pause: in virtual time that would
// be a loop which never ends.
const leastPause = time.Millisecond

// outcome is what comes back.
type outcome[T any] struct {
	resp T
	err  error
}

// after runs f under srv.mu when d has passed, at once if that is nothing.
// Called under srv.mu.
func (l *Link) after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	time.AfterFunc(d, func() {
		l.srv.mu.Lock()
		defer l.srv.mu.Unlock()
		f()
	})
}

// pass runs f if what travels in that direction arrives: at once, after Heal,
// or never if the connection that it was sent on has broken since. Called under
// srv.mu.
func (l *Link) pass(direction int, conn chan struct{}, f func()) {
	select {
	case <-conn:
	default:
		if l.held[direction] {
			l.waiting[direction] = append(l.waiting[direction], f)
			return
		}
		f()
	}
}

// connect waits until there is a connection and returns the channel that is
// closed when it breaks.
func (l *Link) connect(ctx context.Context) (conn chan struct{}, err error) {
	for {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		l.srv.mu.Lock()
		open, conn, closed := l.open, l.broken, l.isClosed
		isOpen := l.isOpen()
		l.srv.mu.Unlock()
		if closed {
			return nil, errClosing
		}
		if isOpen {
			return conn, nil
		}
		select {
		case <-open:
		case <-ctx.Done():
		case <-l.done:
		}
	}
}

// call carries one unary RPC: it sends the request on its way and waits for
// what comes back, or for ctx. serve runs under srv.mu when the request
// arrives, be that after ctx has ended.
func call[T any](ctx context.Context, l *Link, c Call, leader bool, serve func() (T, error)) (T, error) {
	var none T
	conn, err := l.connect(ctx)
	if err != nil {
		return none, err
	}
	back := make(chan outcome[T], 1)
	l.srv.mu.Lock()
	send(ctx, l, conn, c, leader, serve, func(resp T, err error) { back <- outcome[T]{resp, err} })
	l.srv.mu.Unlock()

	select { // what has come back counts, also when something else has ended since
	case o := <-back:
		return o.resp, o.err
	default:
	}
	select {
	case o := <-back:
		return o.resp, o.err
	case <-ctx.Done():
		return none, status.FromContextError(ctx.Err()).Err()
	case <-conn:
		return none, errBroken
	case <-l.done:
		return none, errClosing
	}
}

// send decides on a message's fate and has it happen. answer is called at most
// once, under srv.mu, and must not block. Called under srv.mu.
func send[T any](ctx context.Context, l *Link, conn chan struct{}, c Call, leader bool, serve func() (T, error), answer func(T, error)) {
	l.counts[c.Method]++
	fate := l.fate(c)
	lost := func() {
		failure := errLost
		if fate.Code != codes.OK && fate.Code != codes.Unavailable {
			failure = status.Error(fate.Code, "etcdfake: request or reply lost")
		}
		if !fate.Silent {
			var none T
			l.after(max(fate.Reply, leastPause), func() { l.pass(replies, conn, func() { answer(none, failure) }) })
		}
	}
	if fate.LoseRequest {
		l.after(fate.Request, lost)
		return
	}
	needs := leader && needsLeader(ctx)
	l.after(fate.Request, func() {
		l.pass(requests, conn, func() {
			reply := func(resp T, err error) {
				if fate.LoseReply {
					lost()
					return
				}
				l.after(fate.Reply, func() { l.pass(replies, conn, func() { answer(resp, err) }) })
			}
			var none T
			switch {
			case l.srv.leaderless && needs:
				reply(none, rpctypes.ErrGRPCNoLeader)
			case l.srv.leaderless && leader:
				l.after(requestTimeout, func() { reply(none, rpctypes.ErrGRPCTimeout) })
			default:
				reply(serve())
			}
		})
	})
}

// repeat is what clientv3 does by itself, every 25 ms: a read, a grant or a
// revocation is sent again while it is answered with Unavailable, and anything
// while it is answered with the end of a context that is not the caller's.
func repeat[T any](ctx context.Context, safe bool, op func() (T, error)) (T, error) {
	const most, pause = 100, 25 * time.Millisecond
	for attempt := 1; ; attempt++ {
		resp, err := op()
		if err == nil || attempt == most || ctx.Err() != nil || !again(err, safe) {
			return resp, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return resp, status.FromContextError(ctx.Err()).Err()
		}
	}
}

func again(err error, safe bool) bool {
	code := status.Code(err)
	if e, ok := rpctypes.Error(err).(rpctypes.EtcdError); ok {
		code = e.Code()
	}
	switch code {
	case codes.Unavailable:
		return safe
	case codes.Canceled, codes.DeadlineExceeded:
		return err != errClosing
	}
	return false
}
