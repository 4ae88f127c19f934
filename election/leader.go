package election

import (
	"context"
	"iter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/front"
)

// Leader describes a leader. The zero Leader means that no candidate leads. Compare terms by Token.
type Leader struct {
	// Token is the Term's. It lacks an epoch raised since the election if etcd has compacted that history.
	Token holdfast.Token

	Value    string           // as given to Campaign or, since then, to Proclaim
	Key      string           // of its entry in etcd
	Lease    clientv3.LeaseID // of its entry; 0 for an entry without one, of another client
	Revision int64            // etcd's revision at which the entry was last written

	// For people. Zero for a candidate of etcd's own clients. Times are UTC, in
	// milliseconds, by the clock of the leader's machine.
	Owner  string    // session.Options.Owner of its session
	Host   string    // machine name
	PID    int       // process ID
	Queued time.Time // when it queued
	Since  time.Time // when its term began; zero until about a second after that
}

func leaderOf(f front.Front) Leader {
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

// equalForObservers reports whether nothing has changed since before, or only that Since is known now, or that an
// administrator has asked the leader to resign.
func (l Leader) equalForObservers(before Leader) bool {
	if before.Since.IsZero() {
		before.Since = l.Since
	}
	before.Revision = l.Revision
	return l == before
}

// Leader is Reader.Leader on the session's client; holdfast.ErrClosed when the session is closed.
func (e *Election) Leader(ctx context.Context) (Leader, error) { return e.reader().Leader(ctx) }

// Watch is Reader.Watch on the session's client. It ends with holdfast.ErrClosed when the session is closed.
func (e *Election) Watch(ctx context.Context) iter.Seq2[Leader, error] {
	return e.reader().Watch(ctx)
}
