package etcdtest

import (
	"context"
	"path"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// rpcs counts the RPCs of a link's clients, and applies the RPC faults.
type rpcs struct {
	counter counter
	life    context.Context // of the link

	mu      sync.Mutex      // protects faults, stalled, healed, closed
	faults  []*fault        // the oldest first
	stalled map[string]bool // methods
	healed  chan struct{}   // closed and replaced by heal
	closed  bool

	late sync.WaitGroup // goroutines that send late; they end with life and are joined by close
}

// A fault is an RPC fault that applies to a number of RPCs.
type fault struct {
	kind       kind
	method     string
	left       int // RPCs it still applies to; ≤ 0: all
	conditions []func(any) bool
	code       codes.Code // of loseReply
	held       *Held      // of hold
}

type kind int

const (
	loseRequest kind = iota
	loseReply
	hold
)

func newRPCs(life context.Context) *rpcs {
	return &rpcs{life: life, stalled: make(map[string]bool), healed: make(chan struct{})}
}

func (r *rpcs) add(f *fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, f)
}

// take returns the fault of a kind for a message, and uses it up; nil is none.
func (r *rpcs) take(k kind, method string, message any) *fault {
	r.mu.Lock()
	faults := slices.Clone(r.faults)
	r.mu.Unlock()
	for _, f := range faults {
		if f.kind == k && f.method == method && f.meets(message) && r.use(f) {
			return f
		}
	}
	return nil
}

// meets calls the conditions, which are the test's: the caller must not hold a lock.
func (f *fault) meets(message any) bool {
	for _, met := range f.conditions {
		if !met(message) {
			return false
		}
	}
	return true
}

// use uses f up for one RPC. It returns false if f was used up or healed in the meantime.
func (r *rpcs) use(f *fault) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.faults, f)
	if i < 0 {
		return false
	}
	switch {
	case f.left == 1:
		r.faults = slices.Delete(r.faults, i, i+1)
	case f.left > 1:
		f.left--
	}
	return true
}

func (r *rpcs) stall(methods []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range methods {
		r.stalled[m] = true
	}
}

// gate returns a channel that is closed when the stall of a method ends; nil if the method is not stalled.
func (r *rpcs) gate(method string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stalled[method] {
		return nil
	}
	return r.healed
}

func (r *rpcs) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = slices.DeleteFunc(r.faults, func(f *fault) bool { return f.kind != hold })
	clear(r.stalled)
	close(r.healed)
	r.healed = make(chan struct{})
}

// spawn runs f in a goroutine that close joins. It returns false after close.
func (r *rpcs) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.late.Go(f)
	}
	return !r.closed
}

// close joins the goroutines. The caller has ended life.
func (r *rpcs) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.late.Wait()
}

// forget cancels a hold. It returns false if an RPC has used it up.
func (r *rpcs) forget(h *Held) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.faults)
	r.faults = slices.DeleteFunc(r.faults, func(f *fault) bool { return f.held == h })
	return len(r.faults) < n
}

var (
	errRequestLost = status.Error(codes.Unavailable, "etcdtest: request lost")
	errDropped     = status.Error(codes.Unavailable, "etcdtest: request dropped")
	errClosed      = status.Error(codes.Unavailable, "etcdtest: link closed")
)

// unary is a [grpc.UnaryClientInterceptor].
func (r *rpcs) unary(
	ctx context.Context, fullMethod string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	method := path.Base(fullMethod)
	r.counter.add(method)
	if r.take(loseRequest, method, req) != nil {
		return errRequestLost
	}
	err := func() error {
		var h *Held
		var release <-chan struct{}
		if f := r.take(hold, method, req); f != nil {
			h, release = f.held, f.held.released
		} else if healed := r.gate(method); healed != nil {
			h, release = newHeld(r), healed
		} else {
			return invoke(ctx, fullMethod, req, reply, cc, opts...)
		}
		h.request = proto.Clone(req.(proto.Message))
		late := slices.DeleteFunc(slices.Clone(opts), writesToCaller)
		send := func(ctx context.Context, reply proto.Message) error {
			return invoke(ctx, fullMethod, h.request, reply, cc, late...)
		}
		err := h.sendLater(ctx, release, reply.(proto.Message), send)
		finish(opts, err)
		return err
	}()
	if err != nil {
		return err
	}
	if f := r.take(loseReply, method, req); f != nil {
		err := r.replyLost(ctx, f.code)
		finish(opts, err)
		return err
	}
	return nil
}

// finish tells the caller's options how the RPC has ended, as gRPC would.
func finish(opts []grpc.CallOption, err error) {
	for _, opt := range opts {
		if on, ok := opt.(grpc.OnFinishCallOption); ok {
			on.OnFinish(err)
		}
	}
}

// writesToCaller reports whether an option writes to variables of the caller, which may have returned before a late
// RPC.
func writesToCaller(opt grpc.CallOption) bool {
	switch opt.(type) {
	case grpc.HeaderCallOption, grpc.TrailerCallOption, grpc.PeerCallOption, grpc.OnFinishCallOption:
		return true
	}
	return false
}

// replyLost returns the error the caller gets in place of a reply.
func (r *rpcs) replyLost(ctx context.Context, code codes.Code) error {
	if code != codes.DeadlineExceeded {
		return status.Error(code, "etcdtest: reply lost")
	}
	// DeadlineExceeded before the end of the context would make clientv3 repeat the RPC, even a write.
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-r.life.Done():
		return errClosed
	}
}

// sendLater sends an RPC when release is closed, in its own goroutine since its caller may have returned by then.
// It returns when there is a reply or ctx ends.
func (h *Held) sendLater(
	ctx context.Context, release <-chan struct{}, reply proto.Message, send func(context.Context, proto.Message) error,
) error {
	close(h.arrived)
	h.reply = reply.ProtoReflect().New().Interface()
	h.err = errClosed
	if !h.rpcs.spawn(func() {
		defer close(h.delivered)
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(h.rpcs.life, cancel)()
		select {
		case <-ctx.Done():
			return
		case <-release:
		}
		if h.dropped {
			h.err = errDropped
			return
		}
		h.err = send(ctx, h.reply)
	}) {
		close(h.delivered)
	}
	select {
	case <-h.delivered:
		if h.err == nil {
			proto.Reset(reply)
			proto.Merge(reply, h.reply)
		}
		return h.err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
