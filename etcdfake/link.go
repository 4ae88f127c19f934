package etcdfake

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// A Link is one client's connections to a Server, one to each member. Faults add up; Heal ends all of them. The methods
// are safe for concurrent use, and none of them blocks.
type Link struct {
	srv    *Server
	client func() *clientv3.Client
	done   chan struct{} // closed by Close

	// srv.mu protects the rest.
	open     chan struct{} // closed while connecting works
	conns    []*conn       // the present ones, by member
	next     int           // of the member for the next call
	held     [2]bool       // by direction: messages wait until Heal
	holes    []*Member     // messages to and from these wait until Heal, too
	waiting  [2][]func()   // the messages that wait
	delay    time.Duration
	plan     func(Call) Fate
	faults   []*fault
	counts   map[string]int
	isClosed bool
}

// A conn is a connection to a member.
type conn struct {
	to     *Member
	broken chan struct{} // closed when it breaks
}

// The directions of a message.
const (
	requests = iota
	replies
)

// A Call is an RPC, or a message in a stream, that is about to be sent. Method "Watch" with a nil Request is a message
// with events to the client, for which only Fate.Reply counts. That with one creates a watch: the Request is a
// clientv3.Op, and on a stream of pb.WatchClient a *etcdserverpb.WatchCreateRequest.
type Call struct {
	Method  string // as in etcd's API: "Txn", "Range", "LeaseKeepAlive", "Watch"
	Request any    // for "Txn", a *etcdserverpb.TxnRequest, and so on; must not be changed
}

// A Fate is what happens to a Call. The zero Fate is success without delay.
type Fate struct {
	// Request and Reply are how long the request and its reply travel. A request arrives even if its caller gives up.
	Request, Reply time.Duration

	// LoseRequest: the request never arrives. LoseReply: it is carried out, its reply is lost. A lost Watch is not
	// created.
	LoseRequest, LoseReply bool

	// Silent: the caller waits until its context ends. Otherwise a lost call fails with Code, by default Unavailable,
	// after Request and Reply have passed. After Canceled or DeadlineExceeded clientv3 sends even a write again.
	Silent bool
	Code   codes.Code
}

type fault struct {
	method string
	left   int // calls it still applies to; ≤ 0: all
	fate   Fate
}

// Link returns a new connection to the server.
func (s *Server) Link() *Link {
	l := &Link{
		srv:    s,
		done:   make(chan struct{}),
		open:   make(chan struct{}),
		counts: make(map[string]int),
	}
	for _, m := range s.members {
		l.conns = append(l.conns, &conn{m, make(chan struct{})})
	}
	close(l.open)
	l.client = sync.OnceValue(l.newClient)
	s.mu.Lock()
	s.links = append(s.links, l)
	s.mu.Unlock()
	return l
}

// Client returns the client of the link, always the same one. Closing it closes the link.
func (l *Link) Client() *clientv3.Client { return l.client() }

// KVClient returns a client of the link that sends each Range and Txn once, as a session does. The KV of Client repeats
// them as etcd's client does.
func (l *Link) KVClient() pb.KVClient { return kvClient{link: l, once: true} }

func (l *Link) newClient() *clientv3.Client {
	cli := clientv3.NewCtxClient(context.Background())
	cli.KV = clientv3.NewKVFromKVClient(kvClient{link: l}, cli)
	cli.Lease = clientv3.NewLeaseFromLeaseClient(leaseClient{l}, cli, 5*time.Second)
	cli.Watcher = watcher{l}
	cli.Cluster = clientv3.NewClusterFromClusterClient(clusterClient{link: l}, cli)
	return cli
}

// Close closes the link and its client. Calls in flight fail, but their requests still arrive.
func (l *Link) Close() {
	l.srv.mu.Lock()
	first := !l.isClosed
	l.isClosed = true
	l.srv.mu.Unlock()
	if first {
		close(l.done)
		_ = l.Client().Close() // its error only says that it was closed
	}
}

// Cut breaks the connection: messages in flight are lost, their callers get Unavailable, and new calls wait until Heal
// or their contexts end.
func (l *Link) Cut() {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	l.disconnect()
	if l.isOpen() {
		l.open = make(chan struct{})
	}
}

// Reset breaks the connection, as Cut does; the client can reconnect at once.
func (l *Link) Reset() {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	l.disconnect()
	if l.isOpen() {
		l.resume()
	}
}

func (l *Link) disconnect() {
	for _, m := range l.srv.members {
		l.breaks(m)
	}
	l.waiting = [2][]func(){}
}

// breaks breaks the connection to a member. The next one is another one.
func (l *Link) breaks(m *Member) {
	close(l.conns[m.number].broken)
	l.conns[m.number] = &conn{m, make(chan struct{})}
}

// toNext returns the connection to the next member, as round robin does.
func (l *Link) toNext() *conn {
	l.next++
	return l.conns[(l.next-1)%len(l.conns)]
}

func (l *Link) isOpen() bool { return isClosed(l.open) }

// BlackHole holds all messages in both directions. They arrive after Heal, even requests whose callers gave up.
func (l *Link) BlackHole() { l.hold(requests, replies) }

// BlackHoleReplies holds replies and events; requests are carried out.
func (l *Link) BlackHoleReplies() { l.hold(replies) }

// BlackHoleMember holds all messages between this client and a member, in both directions, until Heal or HealMember.
func (l *Link) BlackHoleMember(m *Member) {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	l.holes = append(l.holes, m)
}

// HealMember ends BlackHoleMember, and no other fault. Messages that were held arrive, in order.
func (l *Link) HealMember(m *Member) {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	l.holes = slices.DeleteFunc(l.holes, func(hole *Member) bool { return hole == m })
	l.passWaiting()
}

// passWaiting passes the messages that wait for no fault any more.
func (l *Link) passWaiting() {
	for d, waiting := range &l.waiting { // what one direction passes may add to the other
		l.waiting[d] = nil
		for _, f := range waiting {
			f()
		}
	}
}

func (l *Link) hold(directions ...int) {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	for _, d := range directions {
		l.held[d] = true
	}
}

// Delay delays every message by d, in each direction.
func (l *Link) Delay(d time.Duration) {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	l.delay = d
}

// LoseRequest loses the next n requests of a method, such as "Txn": they fail with Unavailable. n ≤ 0 means all until
// Heal. The client itself sends reads, grants and revocations again.
func (l *Link) LoseRequest(method string, n int) {
	l.order(&fault{method: mustKnow(method), left: n, fate: Fate{LoseRequest: true}})
}

// LoseReply loses the replies to the next n calls of a method, which are carried out; n ≤ 0 means all until Heal. With
// code Unavailable they fail at once, with DeadlineExceeded when the caller's context ends; any other code is returned
// as it is.
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

// Plan makes f decide the fate of every call from now on, until Heal or Plan(nil). f runs under a lock: it must not
// block, nor call methods of the Server or of a Link.
func (l *Link) Plan(f func(Call) Fate) {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	l.plan = f
}

// Heal ends all faults and the plan. Messages that were held arrive, in order.
func (l *Link) Heal() {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	l.delay, l.plan, l.faults, l.held, l.holes = 0, nil, nil, [2]bool{}, nil
	l.passWaiting()
	if !l.isOpen() {
		close(l.open)
		l.resume()
	}
}

// Count returns how many calls the client has sent so far, by method. In streams each message counts.
func (l *Link) Count() map[string]int {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	return maps.Clone(l.counts)
}

// fate decides the fate of a call. The caller holds srv.mu.
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

// methods are the RPCs that a Server serves.
var methods = []string{
	"Range", "Put", "DeleteRange", "Txn", "Compact", "Watch",
	"LeaseGrant", "LeaseRevoke", "LeaseKeepAlive", "LeaseTimeToLive", "LeaseLeases", "MemberList",
}

// mustKnow panics if etcd has no such method, since a fault for it would never happen.
func mustKnow(method string) string {
	if !slices.Contains(methods, method) {
		panic("etcdfake: etcd has no method \"" + method + "\"")
	}
	return method
}
