package etcdfake

import (
	"context"
	"errors"
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

// minFailure is the least time until a caller learns that its call has failed. Client.KeepAliveOnce retries without a
// pause: without minFailure that would be an endless loop in virtual time.
const minFailure = time.Millisecond

// result is the reply to a call, or its error.
type result[T any] struct {
	resp T
	err  error
}

// after runs f under srv.mu after d; at once if d is 0. The caller holds srv.mu.
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

// pass runs f when a message sent in that direction arrives: at once; after Heal; or never, if its connection has
// broken. The caller holds srv.mu.
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

// connect waits for a connection, and returns the channel that is closed when it breaks.
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

// call sends a unary RPC and waits for the reply or for the end of ctx. serve runs under srv.mu when the request
// arrives, even if ctx has ended by then. needsLeader says whether the server must have a leader to serve it.
func call[T any](ctx context.Context, l *Link, c Call, needsLeader bool, serve func() (T, error)) (T, error) {
	var none T
	conn, err := l.connect(ctx)
	if err != nil {
		return none, err
	}
	reply := make(chan result[T], 1)
	l.srv.mu.Lock()
	send(ctx, l, conn, c, needsLeader, serve, func(resp T, err error) { reply <- result[T]{resp, err} })
	l.srv.mu.Unlock()

	select { // a reply that has arrived wins over a context or a connection that has ended
	case r := <-reply:
		return r.resp, r.err
	default:
	}
	select {
	case r := <-reply:
		return r.resp, r.err
	case <-ctx.Done():
		return none, status.FromContextError(ctx.Err()).Err()
	case <-conn:
		return none, errBroken
	case <-l.done:
		return none, errClosing
	}
}

// send draws the fate of a message and lets it happen. answer is called at most once, under srv.mu, and must not block.
// The caller holds srv.mu.
func send[T any](
	ctx context.Context, l *Link, conn chan struct{}, c Call, needsLeader bool,
	serve func() (T, error), answer func(T, error),
) {
	l.counts[c.Method]++
	fate := l.fate(c)
	lost := func() {
		failure := errLost
		if fate.Code != codes.OK && fate.Code != codes.Unavailable {
			failure = status.Error(fate.Code, "etcdfake: request or reply lost")
		}
		if !fate.Silent {
			var none T
			l.after(max(fate.Reply, minFailure), func() { l.pass(replies, conn, func() { answer(none, failure) }) })
		}
	}
	if fate.LoseRequest {
		l.after(fate.Request, lost)
		return
	}
	failsFast := needsLeader && requiresLeader(ctx)
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
			case l.srv.leaderless && failsFast:
				reply(none, rpctypes.ErrGRPCNoLeader)
			case l.srv.leaderless && needsLeader:
				l.after(requestTimeout, func() { reply(none, rpctypes.ErrGRPCTimeout) })
			default:
				reply(serve())
			}
		})
	})
}

// Whether clientv3 repeats a request after Unavailable.
const (
	repeatable   = true
	unrepeatable = false
)

// unary sends a unary RPC, and repeats it as clientv3 does. See call.
func unary[Req, Resp any](
	ctx context.Context, l *Link, method string, r Req, repeatable, needsLeader bool, serve func(Req) (Resp, error),
) (Resp, error) {
	return retry(ctx, repeatable, func() (Resp, error) {
		return call(ctx, l, Call{method, r}, needsLeader, func() (Resp, error) { return serve(r) })
	})
}

// retry retries as clientv3 does, every 25 ms: reads, grants and revocations after Unavailable; any request, even a
// write, after Canceled or DeadlineExceeded that is not the end of the caller's context.
func retry[T any](ctx context.Context, repeatable bool, op func() (T, error)) (T, error) {
	const maxAttempts, pause = 100, 25 * time.Millisecond
	for attempt := 1; ; attempt++ {
		resp, err := op()
		if err == nil || attempt == maxAttempts || ctx.Err() != nil || !isRetried(err, repeatable) {
			return resp, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return resp, status.FromContextError(ctx.Err()).Err()
		}
	}
}

func isRetried(err error, repeatable bool) bool {
	code := status.Code(err)
	if e, ok := rpctypes.Error(err).(rpctypes.EtcdError); ok {
		code = e.Code()
	}
	switch code {
	case codes.Unavailable:
		return repeatable
	case codes.Canceled, codes.DeadlineExceeded:
		return !errors.Is(err, errClosing)
	}
	return false
}
