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

// rpcs is what the RPCs of a link's clients go through: it counts them and applies the faults that were ordered.
type rpcs struct {
	counter counter
	life    context.Context // of the link

	mu      sync.Mutex      // protects what follows
	faults  []*fault        // in the order in which they were ordered
	stalled map[string]bool // methods
	healed  chan struct{}   // closed by heal, which makes a new one
	closed  bool

	late sync.WaitGroup // goroutines that send later; they end with life, close waits for them
}

// A fault was ordered for a number of RPCs.
type fault struct {
	kind       kind
	method     string
	left       int // RPCs that it is still for; ≤ 0: any number
	conditions []func(any) bool
	code       codes.Code // of kind loseReply
	held       *Held      // of kind hold
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

func (r *rpcs) order(f *fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, f)
}

// take returns the fault of a kind that a message of a method is to suffer; nil: none.
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

// meets calls the conditions, so no lock may be held.
func (f *fault) meets(message any) bool {
	for _, met := range f.conditions {
		if !met(message) {
			return false
		}
	}
	return true
}

// use uses f up for one RPC; false: it was used up, or healed, meanwhile.
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

// gate returns a channel that is closed when the stall of method ends; nil: it is not stalled.
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

// spawn runs f in a goroutine that close waits for; false: it is closed already.
func (r *rpcs) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.late.Go(f)
	}
	return !r.closed
}

// close is called when life has ended.
func (r *rpcs) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.late.Wait()
}

// forget takes back the order of a hold; false: an RPC has used it.
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
func (r *rpcs) unary(ctx context.Context, fullMethod string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
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
		opts = slices.DeleteFunc(slices.Clone(opts), writesToCaller)
		return h.carry(ctx, release, reply.(proto.Message), func(ctx context.Context, reply proto.Message) error {
			return invoke(ctx, fullMethod, h.request, reply, cc, opts...)
		})
	}()
	if err != nil {
		return err
	}
	if f := r.take(loseReply, method, req); f != nil {
		return r.replyLost(ctx, f.code)
	}
	return nil
}

// writesToCaller reports whether an option writes to variables of the caller, who may have left when the RPC is sent late.
func writesToCaller(opt grpc.CallOption) bool {
	switch opt.(type) {
	case grpc.HeaderCallOption, grpc.TrailerCallOption, grpc.PeerCallOption, grpc.OnFinishCallOption:
		return true
	}
	return false
}

// replyLost returns what the caller gets in place of a reply.
func (r *rpcs) replyLost(ctx context.Context, code codes.Code) error {
	if code != codes.DeadlineExceeded {
		return status.Error(code, "etcdtest: reply lost")
	}
	// Not at once: clientv3 sends an RPC again, even a write, when that fails so before its context has ended.
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-r.life.Done():
		return errClosed
	}
}

// carry sends an RPC when release is closed, in a goroutine of its own because that may be after the caller has left. It
// returns when there is a reply or ctx ends.
func (h *Held) carry(ctx context.Context, release <-chan struct{}, reply proto.Message, send func(context.Context, proto.Message) error) error {
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
		if h.isDropped() {
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
