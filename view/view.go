// Package view has what people see of a queue: its entries, and a caller's place among them.
//
// Errors of locker and election, locker.Options.OnWait and package admin tell of queues in these types. Owner, host,
// pid and times are what the process that queued wrote of itself, by its own clock: text for people, not proof. All
// texts may come from other clients: treat them as data. The String methods escape them and cut each after 128 bytes.
package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

// Entry is one holder or waiter. What is not known is zero: an entry of another client has its key and its lease only,
// and so has one in a format of holdfast that this version does not read.
type Entry struct {
	Key      string // in etcd
	Owner    string // Options.Owner of the lock or the session
	Host     string // machine name
	PID      int
	Value    string           // the candidate's value; of another client: what it wrote; above a tree lock: its path
	QueuedAt time.Time        // UTC, in milliseconds
	HeldAt   time.Time        // zero: it does not hold, or has held for less than about a second
	Token    holdfast.Token   `json:",omitzero"` // what the entry's writes are guarded with once it holds; 0: not known
	Revision int64            // the create revision: the order of the queue
	Lease    clientv3.LeaseID // its end removes the entry
	TTL      time.Duration    // what the lease has left, rounded up to seconds; only package admin asks for it
	Foreign  bool             // of another client, such as etcd's own locks
	Shared   bool             // of a reader (locker.RWMutex): other readers hold beside it
	Weight   int              // of a permit of a locker.Semaphore: for how many it counts; otherwise 0
	Waits    bool             // of a permit: it is waited for. Of other kinds the place in the queue tells
	Notice   Notice           // an administrator's, to the holder

	// Unclaimed: etcd has lost its claim, by which those behind learn that it went without a release. If its lease is
	// revoked early, they are not delayed. Only package admin looks.
	Unclaimed bool

	// ReleasedAt is not zero if the holder has released it, and locker.Options.MinHold
	// keeps the name taken until TakenUntil. etcd removes the entry a moment later.
	ReleasedAt, TakenUntil time.Time

	// DetachedAt is not zero if its holder has detached it (see locker.Lock): until DetachedUntil a ticket lets another
	// process hold by it, and none holds meanwhile. Then etcd removes it.
	DetachedAt, DetachedUntil time.Time
}

// Notice is what an administrator has written into the entry of a holder, with Kick or Remove of package admin.
type Notice struct {
	By      string    // who asked
	Reason  string    // why
	At      time.Time // by the clock of the administrator; zero: there is no notice
	Removed bool      // by Remove
	Until   time.Time // the entry was moved to a lease that ends about then; zero: it was not
}

// String says what is asked, who asks and why, on one line.
func (n Notice) String() string {
	what := "asked to let go"
	switch {
	case n.At.IsZero():
		return "no notice"
	case n.Removed:
		what = "being removed"
	}
	return fmt.Sprintf("%s by %s: %s", what, names.Quote(n.By), names.Quote(n.Reason))
}

// Released reports whether the entry was released and only keeps the name taken.
func (e Entry) Released() bool { return !e.ReleasedAt.IsZero() }

// Detached reports whether no process holds by the entry, and a ticket lets one do so.
func (e Entry) Detached() bool { return !e.DetachedAt.IsZero() }

// String says who it is and since when, on one line.
func (e Entry) String() string {
	var who []string
	if e.Shared {
		who = append(who, "reader")
	}
	if e.Weight > 0 {
		who = append(who, "permit of weight "+strconv.Itoa(e.Weight))
	}
	for _, text := range [][2]string{{"owner", e.Owner}, {"host", e.Host}} {
		if text[1] != "" {
			who = append(who, text[0]+" "+names.Quote(text[1]))
		}
	}
	if e.PID != 0 {
		who = append(who, "pid "+strconv.Itoa(e.PID))
	}
	switch {
	case e.Foreign:
		who = append(who, "another client's key "+names.Quote(e.Key))
	case len(who) == 0:
		who = append(who, "key "+names.Quote(e.Key))
	}
	if e.Value != "" {
		who = append(who, "value "+names.Quote(e.Value))
	}
	switch {
	case e.Released():
		who = append(who, "released at "+e.ReleasedAt.Format(time.RFC3339)+
			", its name taken until "+e.TakenUntil.Format(time.RFC3339))
	case e.Detached():
		who = append(who, "detached at "+e.DetachedAt.Format(time.RFC3339)+
			" until "+e.DetachedUntil.Format(time.RFC3339))
	case !e.HeldAt.IsZero():
		who = append(who, "held since "+e.HeldAt.Format(time.RFC3339))
	case !e.QueuedAt.IsZero():
		who = append(who, "queued since "+e.QueuedAt.Format(time.RFC3339))
	}
	if !e.Notice.At.IsZero() {
		who = append(who, e.Notice.String())
	}
	if e.Token != 0 {
		who = append(who, "token "+e.Token.String())
	}
	return strings.Join(append(who, fmt.Sprintf("lease %x", int64(e.Lease))), ", ")
}

// MaxAhead is where Place.Ahead stops counting.
const MaxAhead = 1000

// Place is a caller's place in a queue. The zero Place says that nothing is known.
type Place struct {
	// Name is the lock that the rest is about, where several are acquired together: by a locker.Set, or by a
	// locker.TreeMutex, which may wait for a path above. It is "" otherwise.
	Name string

	// Holder is the first entry of the queue. Its Key is "" if it is not known, or if nothing is ahead.
	Holder Entry

	// Ahead is how many are ahead, the holder included: entries in etcd, and goroutines of the caller's own session
	// that called before it. At most MaxAhead are counted. An acquisition by RWMutex.LockDowngradable has two entries,
	// and may be counted as two. Goroutines of one session share an entry, so more may
	// come ahead of one that waits behind another: see package locker.
	Ahead int

	// Seen is when etcd was asked, by this process's clock: with one read for each OnWait, and one when a call gives up.
	Seen time.Time
}

// Known reports whether anything is known.
func (p Place) Known() bool { return !p.Seen.IsZero() }

func (p Place) of() string {
	if p.Name == "" {
		return ""
	}
	return " of " + names.Quote(p.Name)
}

// String says who holds and how many are ahead, on one line, such as
//
//	held by owner "worker-a", host "h", pid 12, held since 2026-01-31T12:00:00Z, token 120, lease 694d; 2 more ahead
func (p Place) String() string {
	var text string
	more := p.Ahead
	switch {
	case !p.Known():
		return "place not known"
	case p.Holder.Key != "":
		text = "held by " + p.Holder.String()
		if p.Holder.Released() {
			text = "taken by " + p.Holder.String()
		}
		if p.Holder.Detached() {
			text = "detached by " + p.Holder.String()
		}
		if p.Name != "" {
			text = names.Quote(p.Name) + " is " + text
		}
		more--
	case p.Ahead == 0:
		text = "first in the queue" + p.of()
	default:
		text = "holder" + p.of() + " not known"
	}
	if more > 0 {
		atLeast := ""
		if p.Ahead >= MaxAhead {
			atLeast = "at least "
		}
		if p.Holder.Key != "" {
			text += fmt.Sprintf("; %s%d more ahead", atLeast, more)
		} else {
			text += fmt.Sprintf("; %s%d ahead", atLeast, more)
		}
	}
	return text
}
