package etcdtest

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// LoseRequest makes the next n RPCs of a method fail with Unavailable without being sent; n ≤ 0 means all until Heal.
// What a client makes of that is its own affair: clientv3 repeats reads, and each repetition is an RPC more.
//
// The method is the name in etcd's API, such as "Txn", "Range", "LeaseGrant". With conditions, only RPCs count whose
// request (a *etcdserverpb.TxnRequest for "Txn") meets all of them. In streams each message is an RPC, and losing one
// breaks the stream.
func (l *Link) LoseRequest(method string, n int, conditions ...func(request any) bool) {
	l.rpcs.order(&fault{kind: loseRequest, method: mustKnow(method), left: n, conditions: conditions})
}

// LoseReply makes the next n successful RPCs of a method look failed to the client, after the server has carried them out;
// n ≤ 0 means all until Heal. With code Unavailable it fails at once, as when the connection breaks; with
// DeadlineExceeded the caller hears nothing, and fails when its own context ends; any other code is returned as it is.
//
// Method and conditions are as for LoseRequest. In streams each answer is an RPC, conditions are on the answer (a
// *etcdserverpb.LeaseKeepAliveResponse), and losing one breaks the stream.
func (l *Link) LoseReply(method string, n int, code codes.Code, conditions ...func(request any) bool) {
	l.rpcs.order(&fault{kind: loseReply, method: mustKnow(method), left: n, conditions: conditions, code: code})
}

// Stall is BlackHole for some methods: their requests do not arrive and their answers do not come back until Heal, while
// all else works, on the same connection. Requests arrive then, whether or not their callers still wait. In streams that
// are open, as in new ones, messages are held likewise; those that the client has ended by then are dropped.
func (l *Link) Stall(methods ...string) {
	for _, m := range methods {
		mustKnow(m)
	}
	l.rpcs.stall(methods)
}

// Hold makes the next RPC of a method late: it is not sent before [Held.Deliver], and then it is, even if its caller has
// given up meanwhile and got the error of its context. So does a request that sat in the socket of a paused member.
// Conditions are as for LoseRequest; the methods Watch, LeaseKeepAlive and Snapshot are streams and cannot be held.
//
// Heal does not end a Hold. A fault that was ordered for the reply applies to an RPC that was held, too.
func (l *Link) Hold(method string, conditions ...func(request any) bool) *Held {
	if streams[mustKnow(method)] {
		panic("etcdtest: " + method + " is a stream: Stall it")
	}
	h := newHeld(l.rpcs)
	l.rpcs.order(&fault{kind: hold, method: method, left: 1, conditions: conditions, held: h})
	return h
}

// A Held is an RPC on hold.
type Held struct {
	rpcs      *rpcs
	arrived   chan struct{} // closed when there is an RPC
	released  chan struct{} // closed by Deliver and Drop
	delivered chan struct{} // closed when the RPC is over

	mu      sync.Mutex // protects dropped and the closing of released
	dropped bool

	request proto.Message // set before arrived is closed
	reply   proto.Message // set before delivered is closed, as err
	err     error
}

func newHeld(r *rpcs) *Held {
	return &Held{
		rpcs:      r,
		arrived:   make(chan struct{}),
		released:  make(chan struct{}),
		delivered: make(chan struct{}),
	}
}

// Arrived returns a channel that is closed when an RPC is on hold.
func (h *Held) Arrived() <-chan struct{} { return h.arrived }

// Request returns a copy of the request that is on hold. It is nil before Arrived.
func (h *Held) Request() proto.Message {
	select {
	case <-h.arrived:
		return h.request
	default:
		return nil
	}
}

// Deliver sends the RPC on its way, without waiting for it. If none has arrived yet, the one that does goes on at once.
func (h *Held) Deliver() { h.release(false) }

// Drop ends the hold without the RPC ever being sent. A caller that still waits gets Unavailable. If none has arrived yet,
// none will be held.
func (h *Held) Drop() {
	if !h.rpcs.forget(h) {
		h.release(true)
	}
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

func (h *Held) isDropped() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dropped
}

// Delivered returns a channel that is closed when the RPC is over: the server has answered it, or it has failed, or it was
// dropped after it had arrived.
func (h *Held) Delivered() <-chan struct{} { return h.delivered }

// Reply returns what the server has answered, also if the caller was not there any more to hear it. It waits for
// Delivered.
func (h *Held) Reply() (proto.Message, error) {
	<-h.delivered
	if h.err != nil {
		return nil, h.err
	}
	return h.reply, nil
}
