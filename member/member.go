package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/session"
)

const (
	// MaxValue bounds a member's value: 4096 bytes.
	MaxValue = layout.MaxMember // 4096

	// MaxName bounds a member's name: 256 bytes.
	MaxName = layout.MaxText // 256

	// MinRejoin is the least Options.Rejoin: 1 s.
	MinRejoin = time.Second

	// MaxRejoin is the largest Options.Rejoin: a day.
	MaxRejoin = 24 * time.Hour

	// MaxSettle is the largest Options.Settle: an hour.
	MaxSettle = time.Hour
)

// Options describe a member. The zero value of each field is its default.
type Options struct {
	// Name names the member in its group, such as os.Getenv("POD_NAME"). Default: the session's Owner. UTF-8, at most
	// MaxName bytes. Two members may have one name, such as a process and its successor during a restart.
	Name string

	// Value is what the member says of itself, such as its address: any bytes, at most MaxValue.
	Value string

	// Capacity is what it takes of the shards; see package shard. Other groups have no use for it.
	Capacity Capacity

	// Settle is for how long the member takes no shards after it has joined. Package shard says it here for readers, and
	// waits by itself. Default 0: the member takes shards at once. At most MaxSettle.
	Settle time.Duration

	// Rejoin is how long readers list the member in Group.Absent after it has left, or has died and its key has gone:
	// meanwhile a process of its Name is expected back. After a death it is up to half as long again, and up to twice as
	// long if etcd cannot be told when the member leaves. It costs a lease more, and a renewal in each half of Rejoin.
	// Default 0: not at all. MinRejoin to MaxRejoin.
	Rejoin time.Duration
}

// Member is a membership, from Join until Leave or the end of its session. It is safe for concurrent use.
type Member struct {
	host     *lease.Host
	at       layout.Keyspace
	self                  // for good
	reserved *reservation // nil without Rejoin
	stay     stay

	mu      sync.Mutex    // protects what follows
	want    wanted        // what is to stand in etcd
	stands  int           // the number of the latest confirmed wanted
	lease   *lease.Lease  // of the latest confirmed key; nil before
	key     string        // the latest confirmed key; "" before
	ended   error         // why nothing is put any more
	failure error         // of the latest request; nil if that has succeeded
	changed chan struct{} // closed at the next change of any of these
}

// self is what the member says of itself, and never changes.
type self struct {
	name   string
	joined time.Time
	settle time.Duration
}

// stay ends when the member leaves: then run waits for no further lease.
type stay struct {
	context.Context
	end context.CancelFunc
}

// wanted is what is to stand in etcd.
type wanted struct {
	number   int // each change has a larger one
	value    string
	capacity Capacity
	retiring bool
	left     bool // nothing
}

// change is what one call changes of wanted.
type change struct {
	value         *string   // nil: it stays
	capacity      *Capacity // likewise
	retire, leave bool
}

// Join puts the member's key and returns when etcd has confirmed it. It tries until ctx ends.
//
// Errors: *holdfast.ArgumentError and *holdfast.NameError before anything is sent; holdfast.ErrClosed,
// holdfast.ErrClientClosed, and, under session.Options.StayLost, the *holdfast.LostError; an error of etcd where a
// retry cannot help; ctx's error. After an error the process is no member: the key of an unanswered request is removed,
// before Join returns unless ctx has ended. If etcd refuses the removal, too, the error says so; then the key stands
// until the lease ends.
func Join(ctx context.Context, sess *session.Session, group string, o Options) (*Member, error) {
	if err := check(ctx, sess, group, o); err != nil {
		return nil, err
	}
	host := lease.Open(sess)
	m := &Member{
		host: host, at: layout.Members(host.Namespace, group),
		self:    self{name: cmp.Or(o.Name, host.Identity.Owner), joined: time.Now(), settle: o.Settle},
		changed: make(chan struct{}), want: wanted{number: 1, value: o.Value, capacity: o.Capacity},
	}
	if m.name == "" {
		return nil, &holdfast.ArgumentError{Argument: "Options.Name", Reason: "is empty, and so is the session's Owner"}
	}
	m.stay.Context, m.stay.end = context.WithCancel(host.Context)
	if !host.Go(m.run) { // joined by the session's Close
		return nil, m.failed("join", holdfast.ErrClosed)
	}
	if err := m.await(ctx, m.want.number); err != nil {
		m.leave()
		return nil, m.failed("join", err)
	}
	if o.Rejoin > 0 {
		m.reserved = reserve(m, o.Rejoin)
	}
	return m, nil
}

func check(ctx context.Context, sess *session.Session, group string, o Options) error {
	bad := func(argument, reason string) error {
		return &holdfast.ArgumentError{Argument: argument, Reason: reason}
	}
	switch {
	case ctx == nil:
		return bad("ctx", "is nil")
	case sess == nil:
		return bad("sess", "is nil")
	case len(o.Name) > MaxName:
		return bad("Options.Name", fmt.Sprintf("is longer than %d bytes", MaxName))
	case !utf8.ValidString(o.Name):
		return bad("Options.Name", "is not UTF-8")
	case o.Rejoin != 0 && (o.Rejoin < MinRejoin || o.Rejoin > MaxRejoin):
		return bad("Options.Rejoin", fmt.Sprintf("is not between %v and %v", MinRejoin, MaxRejoin))
	case o.Settle < 0 || o.Settle > MaxSettle:
		return bad("Options.Settle", fmt.Sprintf("is not between 0 and %v", MaxSettle))
	}
	if err := names.Check("group", group); err != nil {
		return err
	}
	if err := o.Capacity.Validate("Options.Capacity"); err != nil {
		return err
	}
	return checkValue("Options.Value", o.Value)
}

func checkValue(argument, value string) error {
	if len(value) > MaxValue {
		return &holdfast.ArgumentError{Argument: argument, Reason: fmt.Sprintf("is longer than %d bytes", MaxValue)}
	}
	return nil
}

// Group returns the name of the group.
func (m *Member) Group() string { return m.at.Name }

// String names the member and its group.
func (m *Member) String() string {
	return fmt.Sprintf("member %s of group %s", names.Quote(m.name), names.Quote(m.at.Name))
}

// Name returns the member's name in its group.
func (m *Member) Name() string { return m.name }

// Key returns the member's key in etcd, the latest that etcd has confirmed: each lease has another one.
func (m *Member) Key() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.key
}

// Lease returns the lease of that key.
func (m *Member) Lease() clientv3.LeaseID {
	m.mu.Lock()
	under := m.lease
	m.mu.Unlock()
	return under.ID()
}

// Client returns the session's etcd client.
func (m *Member) Client() *clientv3.Client { return m.host.Client }

// Update replaces the value, and returns when etcd has confirmed the new one. A value of more than MaxValue bytes is a
// *holdfast.ArgumentError. After ctx's error the new value is put all the same, as soon as etcd can be reached. After
// Leave the error is holdfast.ErrReleased; after the end of the session it is holdfast.ErrClosed.
func (m *Member) Update(ctx context.Context, value string) error {
	if err := checkValue("value", value); err != nil {
		return err
	}
	return m.change(ctx, "update", change{value: &value})
}

// Retire says in the member's key: it is about to leave, for good. It returns as Update does.
func (m *Member) Retire(ctx context.Context) error {
	return m.change(ctx, "retire from", change{retire: true})
}

// Leave removes the member's key. It returns when etcd has confirmed the removal, or when the lease is lost, before the
// call or during it, and the key with it. After ctx's error the session goes on removing it. A further Leave is nil
// once the key is gone. With Options.Rejoin readers list the member as absent from then on.
func (m *Member) Leave(ctx context.Context) error {
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	if m.reserved != nil {
		m.reserved.shorten(ctx)
	}
	err := m.await(ctx, m.leave()) // never nil: the membership ends
	for _, gone := range []error{holdfast.ErrReleased, holdfast.ErrClosed, holdfast.ErrLost} {
		if errors.Is(err, gone) {
			return nil
		}
	}
	return m.failed("leave", err)
}

// Check judges the membership now, without a request: nil while the key stands, as far as this process knows;
// holdfast.ErrSuspended; the *holdfast.LostError of the lease it stood under, until it stands under the next;
// holdfast.ErrReleased after Leave; holdfast.ErrClosed.
func (m *Member) Check() error {
	m.mu.Lock()
	lease, err := m.lease, m.endedLocked()
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return lease.Check()
}

func (m *Member) change(ctx context.Context, doing string, c change) error {
	if ctx == nil {
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	}
	m.mu.Lock()
	if err := m.endedLocked(); err != nil {
		m.mu.Unlock()
		return m.failed(doing, err)
	}
	number := m.wantLocked(c)
	m.mu.Unlock()
	if err := m.await(ctx, number); err != nil {
		return m.failed(doing, err)
	}
	return nil
}

// leave has run remove the key, and end. Under a lost lease run removes nothing.
func (m *Member) leave() (number int) {
	defer m.stay.end() // run is to see that the member has left
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wantLocked(change{leave: true})
}

func (m *Member) wantLocked(c change) (number int) {
	if c.value != nil {
		m.want.value = *c.value
	}
	if c.capacity != nil {
		m.want.capacity = *c.capacity
	}
	m.want.retiring = m.want.retiring || c.retire
	m.want.left = c.leave // change refuses what comes after it
	m.want.number++
	m.changedLocked()
	return m.want.number
}

// endedLocked returns why nothing is to be put any more, or nil.
func (m *Member) endedLocked() error {
	if m.want.left {
		return holdfast.ErrReleased
	}
	return m.ended
}

func (m *Member) changedLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// await waits until etcd has confirmed the wanted of a number, or a newer one.
func (m *Member) await(ctx context.Context, number int) error {
	for {
		m.mu.Lock()
		stands, ended, failure, changed := m.stands, m.ended, m.failure, m.changed
		m.mu.Unlock()
		switch {
		case stands >= number:
			return nil
		case ended != nil:
			return ended
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err := retry.OfCaller(ctx, retry.ContextErr(ctx))
			if failure != nil {
				return fmt.Errorf("%w; last error: %w", err, failure)
			}
			return fmt.Errorf("%w; etcd has not answered", err)
		}
	}
}

func (m *Member) failed(doing string, err error) error {
	return fmt.Errorf("%s group %s as %s: %w", doing, names.Quote(m.at.Name), names.Quote(m.name), err)
}
