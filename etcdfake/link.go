package etcdfake

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// Link is one connection to a Server, with faults of its own. Faults add up;
// Heal ends all of them. All methods may be called by several goroutines at
// once, and none of them blocks.
type Link struct {
	srv    *Server
	client func() *clientv3.Client
	done   chan struct{} // closed by Close

	// Protected by srv.mu:
	open     chan struct{} // closed while connections can be made
	broken   chan struct{} // closed when the present connection breaks
	held     [2]bool       // requests, replies: they wait until Heal
	waiting  [2][]func()   // what waits
	delay    time.Duration
	plan     func(Call) Fate
	faults   []*fault
	counts   map[string]int
	isClosed bool
}

// The two directions of a link.
const (
	requests = iota
	replies
)

// Call is one RPC, or one message to the server in a stream, that is about to
// be sent; for the method "Watch" with a nil Request it is events about to be
// sent to the client.
type Call struct {
	Method  string // as in etcd's API: "Txn", "Range", "LeaseKeepAlive", "Watch"
	Request any    // such as *etcdserverpb.TxnRequest; not to be changed
}

// Fate is what becomes of a Call. The zero Fate is that all is well.
type Fate struct {
	// Request and Reply are how long the two travel. A request whose caller
	// gives up meanwhile arrives all the same.
	Request, Reply time.Duration
	// LoseRequest: it never arrives. LoseReply: it is carried out, and the
	// answer is lost. For a Watch, either means that it is not created.
	LoseRequest, LoseReply bool
	// Silent: of the loss the caller hears nothing until its context ends.
	// Otherwise it gets an error after Request and Reply have passed, with
	// Code; 0 means Unavailable. With Canceled or DeadlineExceeded, as a proxy
	// may answer, clientv3 sends again by itself, a write too.
	Silent bool
	Code   codes.Code
}

type fault struct {
	method string
	left   int // ≤ 0: any number
	fate   Fate
}

// Link returns a new connection to the server.
func (s *Server) Link() *Link {
	l := &Link{srv: s, done: make(chan struct{}), open: make(chan struct{}), broken: make(chan struct{}), counts: make(map[string]int)}
	close(l.open)
	l.client = sync.OnceValue(l.newClient)
	s.mu.Lock()
	s.links = append(s.links, l)
	s.mu.Unlock()
	return l
}

// Client returns the client of the link, the same at each call. Closing it
// closes the link.
func (l *Link) Client() *clientv3.Client { return l.client() }

func (l *Link) newClient() *clientv3.Client {
	cli := clientv3.NewCtxClient(context.Background())
	cli.KV = clientv3.NewKVFromKVClient(kvClient{link: l}, cli)
	cli.Lease = clientv3.NewLeaseFromLeaseClient(leaseClient{l}, cli, 5*time.Second)
	cli.Watcher = watcher{l}
	return cli
}

// Close ends the link and its client: calls in progress fail, watches end. What
// was sent before still arrives. Closing again does nothing.
func (l *Link) Close() {
	l.srv.mu.Lock()
	first := !l.isClosed
	l.isClosed = true
	l.srv.mu.Unlock()
	if first {
		close(l.done)
		_ = l.Client().Close() // says only that it was closed
	}
}

// Cut breaks the connection: what is under way is lost, callers that wait get
// Unavailable, and new calls wait for a connection until their contexts end.
func (l *Link) Cut() {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	l.cut()
	if l.isOpen() {
		l.open = make(chan struct{})
	}
}

// Reset breaks the connection, and the next one can be made at once.
func (l *Link) Reset() {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	l.cut()
	if l.isOpen() {
		l.resume()
	}
}

func (l *Link) cut() {
	close(l.broken)
	l.broken = make(chan struct{})
	l.waiting = [2][]func(){}
}

func (l *Link) isOpen() bool {
	select {
	case <-l.open:
		return true
	default:
		return false
	}
}

// BlackHole lets nothing arrive, either way, as when packets are dropped. After
// Heal all of it does: requests whose callers gave up long ago among it.
func (l *Link) BlackHole() { l.hold(requests, replies) }

// BlackHoleReplies is BlackHole in one direction: requests arrive and are
// carried out, no answers and no events come back.
func (l *Link) BlackHoleReplies() { l.hold(replies) }

func (l *Link) hold(directions ...int) {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	for _, d := range directions {
		l.held[d] = true
	}
}

// Delay makes everything take d longer in each direction.
func (l *Link) Delay(d time.Duration) {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	l.delay = d
}

// LoseRequest makes the next n calls of a method fail with Unavailable without
// being carried out; n ≤ 0 means all until Heal. Reads, grants and revocations
// are then sent again by the client itself.
func (l *Link) LoseRequest(method string, n int) {
	l.order(&fault{method: mustKnow(method), left: n, fate: Fate{LoseRequest: true}})
}

// LoseReply makes the next n calls of a method look failed after they have been
// carried out; n ≤ 0 means all until Heal. With code Unavailable they fail at
// once, with DeadlineExceeded when the caller's context ends; any other code is
// returned as it is.
func (l *Link) LoseReply(method string, n int, code codes.Code) {
	f := &fault{method: mustKnow(method), left: n, fate: Fate{LoseReply: true, Code: code}}
	if code == codes.DeadlineExceeded {
		f.fate.Silent = true
	}
	l.order(f)
}

func (l *Link) order(f *fault) {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	l.faults = append(l.faults, f)
}

// Plan has f decide the fate of every call from now on; nil ends that. f is
// called under a lock: it must not block and not call the server or a link. A
// seeded random source makes it a schedule that can be repeated.
func (l *Link) Plan(f func(Call) Fate) {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	l.plan = f
}

// Heal ends all faults and the plan. What was held arrives, in order.
func (l *Link) Heal() {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	l.delay, l.plan, l.faults, l.held = 0, nil, nil, [2]bool{}
	for d, waiting := range l.waiting {
		l.waiting[d] = nil
		for _, f := range waiting {
			f()
		}
	}
	if !l.isOpen() {
		close(l.open)
		l.resume()
	}
}

// Count returns how many calls of each method were sent so far, as in [Call].
func (l *Link) Count() map[string]int {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	return maps.Clone(l.counts)
}

// fate draws what becomes of a call; under srv.mu.
func (l *Link) fate(c Call) (fate Fate) {
	if l.plan != nil {
		fate = l.plan(c)
	}
	fate.Request += l.delay
	fate.Reply += l.delay
	for i, f := range l.faults {
		if f.method != c.Method || c.Request == nil {
			continue
		}
		if f.left--; f.left == 0 {
			l.faults = append(l.faults[:i:i], l.faults[i+1:]...)
		}
		fate.LoseRequest, fate.LoseReply = f.fate.LoseRequest, f.fate.LoseReply
		fate.Silent, fate.Code = f.fate.Silent, f.fate.Code
		break
	}
	return fate
}

// methods are the RPCs that a Server answers.
var methods = []string{
	"Range", "Put", "DeleteRange", "Txn", "Compact", "Watch",
	"LeaseGrant", "LeaseRevoke", "LeaseKeepAlive", "LeaseTimeToLive", "LeaseLeases",
}

// mustKnow returns method, or panics: a fault for a method that does not exist
// would be a test that tests nothing.
func mustKnow(method string) string {
	if !slices.Contains(methods, method) {
		panic("etcdfake: etcd has no method \"" + method + "\"")
	}
	return method
}
