package etcdtest

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// LoseRequest loses the next n requests of a method, such as "Txn", "Range" or "LeaseGrant": they fail with
// Unavailable. n ≤ 0 means all until Heal. Clientv3 repeats reads, and each repetition is another RPC.
//
// With conditions, the fault applies only to RPCs whose request (for "Txn" a *etcdserverpb.TxnRequest) meets all of
// them. In streams each message is an RPC, and losing one breaks the stream.
func (l *Link) LoseRequest(method string, n int, conditions ...func(request any) bool) {
	l.rpcs.add(&fault{kind: loseRequest, method: mustKnow(method), left: n, conditions: conditions})
}

// LoseReply loses the replies to the next n RPCs of a method that succeed; n ≤ 0 means all until Heal. With code
// Unavailable they fail at once, with DeadlineExceeded when the caller's context ends; any other code is returned as it
// is. Method and conditions are as for LoseRequest; in streams, conditions apply to the reply.
func (l *Link) LoseReply(method string, n int, code codes.Code, conditions ...func(request any) bool) {
	l.rpcs.add(&fault{kind: loseReply, method: mustKnow(method), left: n, conditions: conditions, code: code})
}

// Stall holds the requests and replies of some methods until Heal, while all others work on the same connection. The
// requests arrive then, even if their callers have given up. The reply to a request that was sent before is not held.
// In streams messages are held likewise; those of streams that the client has ended are dropped.
func (l *Link) Stall(methods ...string) {
	for _, m := range methods {
		mustKnow(m)
	}
	l.rpcs.stall(methods)
}

// Hold makes the next RPC of a method late: it is sent at Held.Deliver, even if its caller has given up by then, like a
// request in the socket of a paused member. Conditions are as for LoseRequest. Streams (Watch, LeaseKeepAlive,
// Snapshot) cannot be held; Stall them. Heal does not end a Hold. LoseReply applies to a held RPC, too.
func (l *Link) Hold(method string, conditions ...func(request any) bool) *Held {
	if streams[mustKnow(method)] {
		panic("etcdtest: " + method + " is a stream and cannot be held; use Stall")
	}
	h := newHeld(l.rpcs)
	l.rpcs.add(&fault{kind: hold, method: method, left: 1, conditions: conditions, held: h})
	return h
}

// A Held is an RPC that is held, or will be.
type Held struct {
	rpcs      *rpcs
	arrived   chan struct{} // closed when an RPC is held
	released  chan struct{} // closed by Deliver and Drop
	delivered chan struct{} // closed when the RPC has ended

	mu      sync.Mutex // protects the closing of released
	dropped bool       // set before released is closed

	request proto.Message // set before arrived is closed
	reply   proto.Message // set before delivered is closed
	err     error         // likewise
}

func newHeld(r *rpcs) *Held {
	return &Held{
		rpcs:      r,
		arrived:   make(chan struct{}),
		released:  make(chan struct{}),
		delivered: make(chan struct{}),
	}
}

// Arrived returns a channel that is closed when an RPC is held.
func (h *Held) Arrived() <-chan struct{} { return h.arrived }

// Request returns a copy of the request that is held; nil before Arrived.
func (h *Held) Request() proto.Message {
	select {
	case <-h.arrived:
		return h.request
	default:
		return nil
	}
}

// Deliver sends the RPC, and does not wait for its reply. If none has arrived yet, the next one is sent at once.
func (h *Held) Deliver() { h.release(false) }

// Drop discards the RPC; a caller that still waits gets Unavailable. If none has arrived yet, none will be held.
func (h *Held) Drop() {
	if h.rpcs.forget(h) {
		h.err = errDropped
		close(h.delivered)
		return
	}
	h.release(true)
}

func (h *Held) release(drop bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.released:
		return
	default:
	}
	h.dropped = drop
	close(h.released)
}

// Delivered returns a channel that is closed when the RPC has a reply or an error, or was dropped.
func (h *Held) Delivered() <-chan struct{} { return h.delivered }

// Reply waits for Delivered, and returns the server's reply, even if the caller has given up.
func (h *Held) Reply() (proto.Message, error) {
	<-h.delivered
	if h.err != nil {
		return nil, h.err
	}
	return h.reply, nil
}
