package election

import (
	"context"
	"iter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// Leader is who leads. The zero Leader, whose Token is zero, says that nobody
// does. Leaders can be compared with ==; that it is the same term, by Token.
type Leader struct {
	// Token is that of the leader's Term, by which terms can be told apart.
	// For a leader who was elected before the epoch was last bumped, and so
	// long ago that etcd's history is compacted, it lacks the epoch.
	Token fencing.Token

	Value    string           // what it campaigned with or has proclaimed since
	Key      string           // of its entry in etcd
	Lease    clientv3.LeaseID // of its entry; 0: a foreign entry without one
	Revision int64            // etcd's revision at which the entry was last written

	// What the leader's entry says of it, for people. All of it is zero for a
	// candidate of etcd's own clients, at a prefix given to NewAt, and for one
	// of a version of holdfast without these fields. Times are in UTC, to the
	// millisecond, by the clock of the leader's process.
	Owner  string    // session.Options.Owner there
	Host   string    // name of the machine
	PID    int       // process ID
	Queued time.Time // when it queued
	Since  time.Time // since when it leads; zero: told about a second later
}

func leaderOf(f queue.Front) Leader {
	if f.Entry == nil {
		return Leader{}
	}
	return Leader{
		Token:    f.Token,
		Value:    f.Value.Data,
		Key:      string(f.Entry.Key),
		Lease:    clientv3.LeaseID(f.Entry.Lease),
		Revision: f.Entry.ModRevision,
		Owner:    f.Value.Owner,
		Host:     f.Value.Host,
		PID:      f.Value.PID,
		Queued:   f.Value.Queued,
		Since:    f.Value.Held,
	}
}

// sameBut reports whether nothing has changed since before, or only that Since
// has become known.
func (l Leader) sameBut(before Leader) bool {
	if before.Since.IsZero() {
		before.Since, before.Revision = l.Since, l.Revision
	}
	return l == before
}

// Leader asks etcd who leads: Reader.Leader on the session's client. It ends with
// the session too, with holdfast.ErrClosed.
func (e *Election) Leader(ctx context.Context) (Leader, error) { return e.reader().Leader(ctx) }

// Observe ranges over who leads: Reader.Observe on the session's client. It ends
// with the session too, with holdfast.ErrClosed.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return e.reader().Observe(ctx)
}
