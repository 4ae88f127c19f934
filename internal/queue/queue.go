package queue

import (
	"cmp"
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/leftovers"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/internal/watching"
	"github.com/holdfast-go/holdfast/view"
)

// Queue is the queue of one name, as used by one session. It is immutable and does no I/O. A Queue with a bad name or
// without a session says so at the first Acquire.
type Queue struct {
	host   *lease.Host
	shared *shared
	scope
	below string // of a reader: the locked path below this name, for people; or empty
	err   error  // why the queue cannot be used

	limit  int // of a semaphore, as the program names it; otherwise 0
	weight int // of a semaphore: the permits of one attempt

	youngest []clientv3.Op // what a put reads: see youngestKeys
}

// Request is what a caller wants of a queue.
type Request struct {
	Owner string // for the entry's value; empty: the session's
	Data  string // for the entry's value: a candidate's

	OnWait func(view.Place) // is called by Acquire while it waits; may be nil

	Try bool // queues only if the queues are empty

	If []clientv3.Cmp // the entry is put only if these are true, else Acquire returns ErrCondition; nil: always

	telemetry *telemetry.Acquisition // set by the queue
}

// New returns the queue of a name. Its entries are NAMESPACE/KIND/NAME/@/….
func New(host *lease.Host, kind holdfast.Kind, name string) *Queue {
	return newQueue(host, layout.Named(namespaceOf(host), kind, name))
}

// At returns the queue of a foreign prefix, as etcd's concurrency package takes it. Its entries are PREFIX/…, and every
// key there counts as an entry.
func At(host *lease.Host, kind holdfast.Kind, prefix string) *Queue {
	return newQueue(host, layout.At(namespaceOf(host), kind, prefix))
}

func namespaceOf(host *lease.Host) string {
	if host == nil {
		return "" // newQueue reports the missing session
	}
	return host.Namespace
}

func newQueue(host *lease.Host, at layout.Keyspace) *Queue {
	q := &Queue{host: host, scope: scope{At: at}, err: at.Check()}
	if host == nil {
		q.err = &holdfast.ArgumentError{Argument: "sess", Reason: "is nil"}
		return q
	}
	q.shared, q.youngest = sharedBy(q.host), q.youngestKeys()
	return q
}

// Readers returns the queue as readers use it: only writers exclude an entry put through it.
func (q *Queue) Readers() *Queue {
	if q == nil {
		return nil
	}
	readers := *q
	readers.Reader = true
	readers.youngest = readers.youngestKeys()
	return &readers
}

// Above returns the queue as a lock of a path below its name uses it: as its readers do.
func (q *Queue) Above(path string) *Queue {
	above := q.Readers()
	above.below = path
	return above
}

// keys returns the key of an entry put through q, and the key of its claim; empty without the right to it.
func (q *Queue) keys(id string) (entry, claim string) {
	switch {
	case q.Reader:
		entry = q.At.ReaderKey(id)
	case q.limit != 0:
		entry = q.At.PermitKey(q.weight, id)
	case !q.Unclaimed:
		return q.At.Keys(id)
	default:
		entry, _ = q.At.Keys(id)
	}
	return entry, q.claimKey(entry)
}

// claimKey is the key of the claim of an entry; empty without the right to it.
func (q *Queue) claimKey(entry string) string {
	if q.Unclaimed {
		return ""
	}
	return q.At.ClaimKey(entry)
}

// withoutClaims returns the queue as a client without the right to its claims uses it.
func (q *Queue) withoutClaims() *Queue {
	unclaimed := *q
	unclaimed.Unclaimed = true
	unclaimed.youngest = unclaimed.youngestKeys()
	return &unclaimed
}

// errNoQueue: a Mutex{} or an Election{}.
var errNoQueue = &holdfast.ArgumentError{
	Argument: "receiver",
	Reason:   "is a zero value: make it with one of the constructors, which take a session and a name",
}

// Host returns the session behind the queue; nil without one.
func (q *Queue) Host() *lease.Host {
	if q == nil {
		return nil
	}
	return q.host
}

// Kind returns what the name is of.
func (q *Queue) Kind() holdfast.Kind {
	if q == nil {
		return ""
	}
	return q.At.Kind
}

// String names the queue for the text of an error, such as `lock "x"`.
func (q *Queue) String() string { return q.At.String() }

// Name returns the name or prefix as it was given.
func (q *Queue) Name() string {
	if q == nil {
		return ""
	}
	return q.At.Name
}

// Layout says where the entries stand.
func (q *Queue) Layout() layout.Keyspace { return q.At }

// Err returns why the queue cannot be used, or nil.
func (q *Queue) Err() error {
	if q == nil {
		return errNoQueue
	}
	return q.err
}

// WhileOpen calls op with ctx, ended also by the end of the session. If the end of the session or of its client ended
// op, the error says so.
func (q *Queue) WhileOpen(ctx context.Context, op func(ctx context.Context) error) error {
	if err := (Set{q}).usable(ctx); err != nil {
		return err
	}
	open, cancel := lease.WithSession(ctx, q.host.Env)
	defer cancel()
	return lease.EndedBy(ctx, q.host.Env, op(open))
}

// Same reports whether two queues have the same entries: the same keys, through the same client. With another client
// the same name may be other keys, because client/v3/namespace adds a prefix to all of them.
func (q *Queue) Same(other *Queue) bool {
	return q.At.Entries == other.At.Entries && q.host.Client == other.host.Client
}

// entryValue returns the value of an entry for a caller.
func (q *Queue) entryValue(r Request) string {
	if q.At.Verbatim {
		return r.Data
	}
	who := q.host.Identity
	if r.Owner != "" {
		who.Owner = r.Owner
	}
	v := layout.Value{Identity: who, Mode: "exclusive", Queued: time.Now(), Data: cmp.Or(r.Data, q.below)}
	switch {
	case q.At.Kind == holdfast.KindElection:
		v.Mode = ""
	case q.Reader:
		v.Mode = "shared"
	case q.At.Kind == holdfast.KindSemaphore:
		v.Mode = "permit"
	}
	v.ToldWithin = q.shared.toldWithin
	return v.Encode()
}

// ReportUnknown reports whether the outcome of the request is unknown, and counts it if so.
func (q *Queue) ReportUnknown(request string, err error) bool {
	if etcderr.Classify(err) != etcderr.Unknown {
		return false
	}
	q.host.Telemetry.Ambiguous(q.At.Kind, request)
	return true
}

// shared is what all queues of one session have in common.
type shared struct {
	host *lease.Host
	facts

	lines  lines
	delays delays

	unclaimed sync.Map // by Entries: the foreign prefixes to whose claims this client has no right

	permitPuts chan struct{} // one for each put of a permit under way
	commits    requests.Committer
	streams    watching.Streams

	keys    *leftovers.Keys
	sweeper *leftovers.Sweeper
}

// maxPermitPuts is how many puts of permits a session has under way. A thousand puts at once read each other, and most
// do not fit.
const maxPermitPuts = 16

// facts stay the same in a session, so they are computed once.
type facts struct {
	toldWithin time.Duration // see lease.ToldWithin
	lookLasts  time.Duration // see lease.LookLasts
	getEpoch   clientv3.Op   // reads the fencing epoch
	claimValue string        // of all claims of the session
}

type sharedKey struct{}

func sharedBy(host *lease.Host) *shared {
	return host.Extension(sharedKey{}, func() any {
		delay := host.LockDelay
		s := &shared{
			host: host,
			facts: facts{
				toldWithin: lease.ToldWithin(delay), lookLasts: lease.LookLasts(delay),
				getEpoch:   clientv3.OpGet(names.EpochKey(host.Namespace)),
				claimValue: layout.Claim{LockDelay: delay, ToldWithin: lease.ToldWithin(delay)}.Encode(),
			},
			commits:    requests.Committer{Sender: host.Sender, Go: host.Go},
			permitPuts: make(chan struct{}, maxPermitPuts),
		}
		s.keys, s.sweeper = leftovers.New(host)
		host.BeforeRevoke(func(_ context.Context, lease *lease.Lease) { s.keys.Forget(lease) })
		return s
	}).(*shared)
}

// isUnclaimed reports whether this client has no right to the claims of a prefix.
func (s *shared) isUnclaimed(at layout.Keyspace) bool {
	_, known := s.unclaimed.Load(at.Entries)
	return known
}

// noteUnclaimed records a prefix to whose claims this client has no right, and tells the session's logger once.
func (s *shared) noteUnclaimed(at layout.Keyspace) {
	if _, known := s.unclaimed.LoadOrStore(at.Entries, true); !known {
		s.host.Logger.Warn("holdfast: no right to the claims of a prefix; entries are put without them, so one that comes "+
			"after this session's lease was revoked may hold before this session is told; grant the role what "+
			"\"holdfast check --at\" names", "kind", at.Kind, "name", at.Name, "claims", at.Claims)
	}
}
