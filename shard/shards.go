package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/session"
)

// MaxCount is the largest number of shards of one name: 16,384.
const MaxCount = layout.MaxCount // 16,384

const defaultDrainTimeout = 30 * time.Second

// Options are the policies of Shards. The zero value of each field is its default. A value out of range is a
// *holdfast.ArgumentError of Run.
type Options struct {
	// Member names this member, and stays the same when its process is started again: os.Getenv("POD_NAME") of a
	// StatefulSet. Shards are assigned by the members' names and capacities. UTF-8, at most member.MaxName bytes.
	// Default: the session's Owner. Members of one name count as one, and the first of them to queue holds.
	Member string

	// Value is shown to readers of the owners, such as the member's address; at most member.MaxValue bytes. It stands in
	// the entry of each shard.
	Value string

	// Capacity is how many shards this member takes beside the others, and its zone. Update changes it.
	Capacity Capacity

	// Rejoin is how long the others leave the shards of this member to the next process of its name, after it has left or
	// died: a restart within that time moves no shard. If the member does not come back, its shards have no owner for so
	// long; see docs/shards.md. It costs a lease more, and a renewal in each half of Rejoin. It needs Member. Default 0:
	// the others take over at once. member.MinRejoin (1 s) to member.MaxRejoin (24 h).
	Rejoin time.Duration

	// Settle keeps shards from a new member until no other has joined for that time, and no longer than ten times that.
	// So a fleet that starts moves each shard once. The first start waits, too. There is no wait when a member leaves,
	// dies, goes out of service or comes back into it, or joins under a name that is expected back (Rejoin). All
	// members must name the same: if one waits longer, its shards have no owner for the difference. Default 3 s;
	// negative: no wait. At most 1 h.
	Settle time.Duration

	// DrainTimeout is how long Run waits for a function after its context has ended; then the shard is lost with
	// holdfast.CauseNotDrained. Default 30 s. If it is too short, the next owner starts beside the function's cleanup; a
	// stuck function keeps its shard from the next owner for so long.
	DrainTimeout time.Duration

	// CancelOnSuspended cancels the functions' contexts already when the session is suspended: see locker.Options.
	CancelOnSuspended bool

	// OnOverrun is called when a function of Run has not returned in time after its shard was lost. Default nil.
	OnOverrun holdfast.OverrunFunc

	// Auditor is told when a shard begins to be held, is released, or is lost. Default: the session's Logger.
	Auditor audit.Auditor

	// Retry sets the pauses before a member queues again for a shard, after its function has returned or etcd has
	// refused; they start over after a hold of 1 s. After functions that return nil they grow up to a minute. Default: up
	// to 10 ms at first, up to 1 s later.
	Retry backoff.Policy

	// OnError is called for failures after which Run goes on: an error of a function, unless it only says its context has
	// ended; ErrReturned, if a function returned nil while its shard is still assigned to this member; ErrNotDrained, if
	// a function has not returned within DrainTimeout; an error of etcd, after which the member queues again. Calls are
	// made one at a time, in order, on a goroutine of their own. Default: a warning in the session's log.
	OnError func(shard int, err error)
}

func (o Options) validate() error {
	bad := func(field, reason string) error {
		return &holdfast.ArgumentError{Argument: "Options." + field, Reason: reason}
	}
	if o.DrainTimeout < 0 {
		return bad("DrainTimeout", "is negative")
	}
	if o.Settle > maxSettle {
		return bad("Settle", fmt.Sprintf("is longer than %v", maxSettle))
	}
	if err := o.Retry.Validate(); err != nil {
		return bad("Retry", err.Error())
	}
	switch {
	case o.Rejoin != 0 && (o.Rejoin < member.MinRejoin || o.Rejoin > member.MaxRejoin):
		return bad("Rejoin", fmt.Sprintf("is not between %v and %v", member.MinRejoin, member.MaxRejoin))
	case o.Rejoin != 0 && o.Member == "":
		return bad("Rejoin", "needs Options.Member: the session's Owner is another one after a restart")
	case len(o.Member) > member.MaxName:
		return bad("Member", fmt.Sprintf("is longer than %d bytes", member.MaxName))
	case !utf8.ValidString(o.Member):
		return bad("Member", "is not UTF-8")
	case len(o.Value) > member.MaxValue:
		return bad("Value", fmt.Sprintf("is longer than %d bytes", member.MaxValue))
	}
	return o.Capacity.Validate("Options.Capacity")
}

func (o Options) settle() time.Duration { return cmp.Or(o.Settle, defaultSettle) }

func (o Options) drainTimeout() time.Duration { return cmp.Or(o.DrainTimeout, defaultDrainTimeout) }

// Shards are the shards of one name, with policies. They do no I/O when made, and may be copied and used by any number
// of goroutines. Copies share what Owned and Update use; nothing else of them changes.
type Shards struct {
	sess *session.Session
	host *lease.Host // nil without a session
	name string
	n    int
	opts Options

	here *here // copies share it; nil of the zero value
}

// New names n shards, 1 to MaxCount, in the session's namespace; see CheckName. A bad name, a bad n or a nil session is
// an error of Run.
func New(sess *session.Session, name string, n int) *Shards {
	return &Shards{sess: sess, host: lease.Open(sess), name: name, n: n, here: new(here)}
}

// With returns a copy with these options, in place of those it had.
func (s *Shards) With(o Options) *Shards {
	with := *s
	with.opts = o
	return &with
}

// Name returns the name given to New.
func (s *Shards) Name() string { return s.name }

// Count returns the number of shards.
func (s *Shards) Count() int { return s.n }

// Group returns the group of the members: "shard/NAME". Read it with member.NewReader. Only Run should join it, because
// each of its members is assigned shards.
func (s *Shards) Group() string { return layout.ShardGroup(s.name) }

// queue returns the queue of one shard: that of the name NAME/INDEX.
func (s *Shards) queue(index int) *queue.Queue {
	return queue.New(s.host, holdfast.KindShard, s.name+"/"+strconv.Itoa(index))
}

func (s *Shards) validate(ctx context.Context, fn func(context.Context, *Shard) error) error {
	bad := func(argument, reason string) error {
		return &holdfast.ArgumentError{Argument: argument, Reason: reason}
	}
	switch {
	case s == nil || s.host == nil:
		return bad("sess", "is nil")
	case s.n < 1 || s.n > MaxCount:
		return bad("n", fmt.Sprintf("is not between 1 and %d", MaxCount))
	case ctx == nil:
		return bad("ctx", "is nil")
	case fn == nil:
		return bad("fn", "is nil")
	case s.opts.Member == "" && s.host.Identity.Owner == "":
		return bad("Options.Member", "is empty, and so is the session's Owner")
	}
	if err := CheckName(s.name); err != nil {
		return err
	}
	return s.opts.validate()
}

func (s *Shards) failed(err error) error {
	if s == nil {
		return fmt.Errorf("run shards: %w", err)
	}
	return fmt.Errorf("run shards %s: %w", names.Quote(s.name), err)
}

func (s *Shards) log() *slog.Logger {
	return s.host.Logger.With("kind", string(holdfast.KindShard), "name", s.name)
}

// hook is an alias: it keeps Shard's field from being exported.
type hook = requests.Hook

// Shard is one hold of a shard, until it is released or lost, and never again after. It may be used by any number of
// goroutines. It is a fencing.Holder.
type Shard struct {
	hook   // leads fenced writers to the hold
	hold   *hold.Hold
	index  int
	strict bool // contexts are canceled on suspension
}

var _ fencing.Holder = (*Shard)(nil)

// Index says which shard it is: 0 to n-1.
func (s *Shard) Index() int { return s.index }

// Name is the name of the shard's lock: NAME/INDEX, such as "orders/7". Guards compare ClaimName.
func (s *Shard) Name() string { return s.hold.Queue().Name() }

// ClaimName is the name for guards, as in fencing.Present: NAME/, such as "orders/". Another number of shards does not
// change it. So a resource keeps its mark when it comes to lie in another shard, and stale owners of the old number are
// refused.
func (s *Shard) ClaimName() string { return strings.TrimSuffix(s.Name(), strconv.Itoa(s.index)) }

// String names the shard, with its token and its lease.
func (s *Shard) String() string { return s.hold.String() }

// Token is the fencing token, larger than the token of every earlier owner of this shard. Send it, with ClaimName, to
// whatever can compare it.
func (s *Shard) Token() holdfast.Token { return s.hold.Token() }

// AcquiredRevision is the etcd revision of the read that showed the hold, as that of a locker.Lock.
func (s *Shard) AcquiredRevision() int64 { return s.hold.AcquiredRevision() }

// Lease is the lease of the shard's entry.
func (s *Shard) Lease() clientv3.LeaseID { return s.hold.Lease() }

// Key is the key of the shard's entry in etcd.
func (s *Shard) Key() string { return s.hold.Key() }

// Client is the session's etcd client.
func (s *Shard) Client() *clientv3.Client { return s.hold.Client() }

// Holding is a comparison for your own Txn: the shard's entry exists.
func (s *Shard) Holding() []clientv3.Cmp { return s.hold.Holding() }

// Check reports whether the hold goes on, without an RPC: see [fencing.Source].
func (s *Shard) Check() error { return s.hold.Check() }

// end returns why the contexts of the shard are to end, or nil.
func (s *Shard) end() error {
	err := s.Check()
	if errors.Is(err, holdfast.ErrSuspended) && !s.strict {
		return nil
	}
	return err
}

// Done is closed when the hold has ended. Check says how.
func (s *Shard) Done() <-chan struct{} { return s.hold.Done() }

// WithContext returns a child of ctx. It carries the shard for fencing.FromContext, and is canceled when the hold ends
// or, with Options.CancelOnSuspended, is suspended. context.Cause is Check's error then. Call cancel when done with it.
func (s *Shard) WithContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.hold.Context(fencing.NewContext(ctx, s), s.strict)
}
