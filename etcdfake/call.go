package etcdfake

import (
	"context"
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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

// pass runs f when a message sent in that direction arrives: at once; after Heal or Resume; or never, if its connection
// has broken. The caller holds srv.mu.
func (l *Link) pass(direction int, on *conn, f func()) {
	again := func() { l.pass(direction, on, f) }
	switch {
	case on.isBroken():
	case l.held[direction] || slices.Contains(l.holes, on.to):
		l.waiting[direction] = append(l.waiting[direction], again)
	case on.to.hangs:
		on.to.held = append(on.to.held, again)
	default:
		f()
	}
}

func (c *conn) isBroken() bool { return isClosed(c.broken) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// connect waits for a connection to a member; nil is the next one.
func (l *Link) connect(ctx context.Context, to *Member) (*conn, error) {
	for {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		l.srv.mu.Lock()
		open, closed := l.open, l.isClosed
		isOpen := l.isOpen()
		var on *conn
		switch {
		case !isOpen || closed:
		case to == nil:
			on = l.toNext()
		default:
			on = l.conns[to.number]
		}
		l.srv.mu.Unlock()
		if closed {
			return nil, errClosing
		}
		if isOpen {
			return on, nil
		}
		select {
		case <-open:
		case <-ctx.Done():
		case <-l.done:
		}
	}
}

// call sends a unary RPC to the next member, or to the one that is given, and waits for the reply or for the end of
// ctx. serve runs under srv.mu when the request arrives, even if ctx has ended by then. needsLeader says whether the
// server must have a leader to serve it.
func call[T any](
	ctx context.Context, l *Link, to *Member, c Call, needsLeader bool, serve func(*conn) (T, error),
) (T, error) {
	var none T
	on, err := l.connect(ctx, to)
	if err != nil {
		return none, err
	}
	reply := make(chan result[T], 1)
	l.srv.mu.Lock()
	send(ctx, l, on, c, needsLeader, func() (T, error) { return serve(on) },
		func(resp T, err error) { reply <- result[T]{resp, err} })
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
	case <-on.broken:
		return none, errBroken
	case <-l.done:
		return none, errClosing
	}
}

// send draws the fate of a message and lets it happen. answer is called at most once, under srv.mu, and must not block.
// The caller holds srv.mu.
func send[T any](
	ctx context.Context, l *Link, on *conn, c Call, needsLeader bool,
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
			l.after(max(fate.Reply, minFailure), func() { l.pass(replies, on, func() { answer(none, failure) }) })
		}
	}
	if fate.LoseRequest {
		l.after(fate.Request, lost)
		return
	}
	failsFast := needsLeader && requiresLeader(ctx)
	l.after(fate.Request, func() {
		l.pass(requests, on, func() {
			reply := func(resp T, err error) {
				if fate.LoseReply {
					lost()
					return
				}
				l.after(fate.Reply, func() { l.pass(replies, on, func() { answer(resp, err) }) })
			}
			var none T
			switch {
			case l.srv.leaderless && failsFast:
				reply(none, rpctypes.ErrGRPCNoLeader)
			case l.srv.leaderless && needsLeader:
				l.after(requestTimeout, func() { reply(none, rpctypes.ErrGRPCTimeout) })
			case needsLeader && waitsToApply(c.Method):
				resp, err := serve()
				on.to.signs(resp)
				on.to.whenApplied(l.srv.rev, func() { reply(resp, err) })
			default:
				resp, err := serve()
				on.to.signs(resp)
				reply(resp, err)
			}
		})
	})
}

// Whether clientv3 repeats a request after Unavailable.
const (
	repeatable   = true
	unrepeatable = false
)

// waitsToApply reports whether a member replies to a request that needs a leader only when it has applied what was
// committed before. Renewals are answered from the leader's memory, and a watch is created at once.
func waitsToApply(method string) bool { return method != "LeaseKeepAlive" && method != "Watch" }

// signs names the member in the header of its reply.
func (m *Member) signs(reply any) {
	if r, ok := reply.(interface{ GetHeader() *pb.ResponseHeader }); ok && r.GetHeader() != nil {
		r.GetHeader().MemberId = m.ID()
	}
}

// unary sends a unary RPC, and repeats it as clientv3 does. See call.
func unary[Req, Resp any](
	ctx context.Context, l *Link, method string, r Req, repeatable, needsLeader bool, serve func(Req) (Resp, error),
) (Resp, error) {
	return retry(ctx, repeatable, func() (Resp, error) { return once(ctx, l, method, r, needsLeader, serve) })
}

// once sends a unary RPC once.
func once[Req, Resp any](
	ctx context.Context, l *Link, method string, r Req, needsLeader bool, serve func(Req) (Resp, error),
) (Resp, error) {
	return call(ctx, l, nil, Call{method, r}, needsLeader, func(*conn) (Resp, error) { return serve(r) })
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
