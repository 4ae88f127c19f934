package etcdfake

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// watcher replaces clientv3's Watcher, whose code does not work in a bubble: it waits on a channel that was made
// outside, and virtual time does not advance while a goroutine does that.
type watcher struct{ link *Link }

// Watch implements clientv3.Watcher. As there, it returns when the server has replied or ctx has ended, and the channel
// is closed after the last response.
func (r watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	op := clientv3.OpGet(key, opts...) // 3.6 has no OpWatch
	out := make(chan clientv3.WatchResponse, 1)
	for pause := minFailure; ; pause = min(2*pause, 100*time.Millisecond) {
		w, err := r.start(ctx, op)
		switch {
		case err == nil:
			created, _ := w.out.take() // the creation notice
			first := fromProto(created)
			if first.Err() != nil || flag(op, "createdNotify") {
				out <- first
			}
			if first.Err() != nil {
				close(out)
				return out
			}
			go r.serve(ctx, w, out) // ends with ctx, the link, or the watch's last response
			return out
		case ctx.Err() != nil || status.Code(err) == codes.Canceled:
			close(out)
			return out
		case !errors.Is(err, errBroken) && !errors.Is(err, errLost):
			out <- canceled(status.Convert(err).Message())
			close(out)
			return out
		}
		select { // the stream broke; clientv3 opens a new one
		case <-time.After(pause):
		case <-ctx.Done():
		case <-r.link.done: // the client is closed, which ends its watches
			close(out)
			return out
		}
	}
}

// start creates the watch on the server.
func (r watcher) start(ctx context.Context, op clientv3.Op) (*watch, error) {
	l := r.link
	creation := Call{"Watch", op}
	return call(ctx, l, nil, creation, requiresLeader(ctx), func(on *conn) (*watch, error) {
		w := &watch{
			link:        l,
			in:          span{op.KeyBytes(), op.RangeBytes()},
			noPut:       flag(op, "filterPut"),
			noDelete:    flag(op, "filterDelete"),
			prevKV:      flag(op, "prevKV"),
			needsLeader: requiresLeader(ctx),
			conn:        on,
			out:         newMailbox[*pb.WatchResponse](),
		}
		l.srv.create(w, op.Rev())
		// The caller may have given up before the watch was created.
		w.stop = context.AfterFunc(ctx, func() { r.end(w) })
		return w, nil
	})
}

func (r watcher) end(w *watch) {
	r.link.srv.mu.Lock()
	defer r.link.srv.mu.Unlock()
	r.link.srv.forget(w)
}

// serve forwards the responses of a watch to its channel.
func (r watcher) serve(ctx context.Context, w *watch, out chan<- clientv3.WatchResponse) {
	defer close(out)
	defer r.end(w)
	defer w.stop()
	for {
		next, ok := w.out.take()
		if !ok {
			select {
			case <-w.out.ready:
				continue
			case <-ctx.Done():
				return
			case <-r.link.done:
				return
			}
		}
		resp := fromProto(next)
		select {
		case out <- resp:
		case <-ctx.Done():
			return
		case <-r.link.done:
			return
		}
		if resp.Err() != nil {
			return
		}
	}
}

// RequestProgress implements clientv3.Watcher: every watch of the client gets the current revision, after all earlier
// events, unless it begins in the future.
func (r watcher) RequestProgress(ctx context.Context) error {
	s := r.link.srv
	_, err := call(ctx, r.link, nil, Call{"Watch", nil}, false, func(*conn) (struct{}, error) {
		for _, w := range s.watches {
			if w.link == r.link && w.fail == nil && !w.behind() {
				w.resume = w.conn.to.applied + 1
				w.tell(&pb.WatchResponse{})
			}
		}
		return struct{}{}, nil
	})
	return clientv3.ContextError(ctx, err)
}

// Close implements clientv3.Watcher. Client.Close calls it; it closes the link.
func (r watcher) Close() error {
	r.link.Close()
	return nil
}
