// Package lastrun records in etcd when a recurring job last ran, so that an overdue job shows even when no process is
// up.
//
//	err := mu.Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
//		last, err := lastrun.Read(ctx, sess, holdfast.KindLock, mu.Name())
//		if err != nil || last.Slot >= slot {
//			return err // nil: another process has run it
//		}
//		if err := report(ctx, slot); err != nil {
//			return err // the next process runs it
//		}
//		return lastrun.Record(ctx, lk, slot, 26*time.Hour) // the next run is overdue after that
//	})
//
// "holdfast show" and package admin read the record, too. Each process that records or reads it reports it as a metric.
// docs/cron.md has the ways to run a job once per interval, and says when to take which.
//
// # Guarantees
//
//   - [Record] is a fenced write: a former holder cannot undo what the next one has recorded.
//   - No late copy of a request replaces a later record.
//
// # Not guaranteed
//
//   - That a job runs once in each slot: after a crash between the work and Record it runs again.
//   - That clocks agree: the times of a record are by the clock of its process.
//   - That the record goes with its job: it is one key for each name, on no lease, and nothing removes it. When the job
//     is given up, delete NAMESPACE/KIND/NAME/@run; KIND is lock, tree or election.
package lastrun
