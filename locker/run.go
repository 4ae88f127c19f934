package locker

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/view"
)

// RecordRun records in etcd that a recurring job has run under this lock: when, by which process, and its slot, which
// says which run it was. The next run is due within that time; 0: it is not known when. Mutex.LastRun, "holdfast show"
// and package admin read the record, and processes that call one of these two methods report it as a metric. So it is
// seen that the job has not run for too long, also when no process is up. See docs/cron.md.
//
// Call it when the work is done. It is a fenced write, so a former holder cannot undo it. It tries until ctx ends. An
// error that Is holdfast.ErrLost says that the lock was lost and nothing was recorded; one that Is
// holdfast.ErrOutcomeUnknown that it may have been. *holdfast.ArgumentError: a slot of more than 256 bytes, a negative
// time, or a lock made with NewMutexAt.
//
// It costs one read and one write. The record is one key for each name, NAMESPACE/lock/NAME/@run, without a lease.
// Nothing removes it: when the job is given up, delete the key.
func (l *writeLock) RecordRun(ctx context.Context, slot string, within time.Duration) error {
	return hold.RecordRun(ctx, l.hold.Queue(), l, slot, within)
}

// LastRun reads what RecordRun has recorded last for this name: by one request, and without the lock. It is the zero
// Run if nothing is recorded.
func (m *mutex) LastRun(ctx context.Context) (view.Run, error) {
	return hold.LastRun(ctx, m.named.first())
}
