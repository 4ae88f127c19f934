// Package gocronlock runs the jobs of gocron v2 (github.com/go-co-op/gocron/v2) on one of several schedulers, over
// etcd.
//
// There are two ways. Both give the job a context that is canceled when it may no longer run, and a fencing token:
//
//   - [Locker]: each run of a job takes a lock, so the runs spread over the schedulers.
//   - [Elector]: one scheduler leads and runs all jobs, until it stops or fails.
//
// # Clocks
//
// gocron starts a job on each scheduler at the same time of day, as told by the clock of each machine. A lock that is
// released at the end of a short job is free again when a scheduler with a late clock tries, and the job runs twice. So
// the Locker holds the lock of a run for at least LockerOptions.Lock.MinHold, and gives up an attempt after
// LockerOptions.Timeout. A job runs once for each slot as long as clocks (and the start of a run) differ by less than
// MinHold minus Timeout. A slot is missed only if no scheduler can take the lock in time, or if the former run still
// holds it: choose MinHold at least 5 s shorter than the interval of the job.
//
// Jobs must be aligned to the clock, as CronJob and DailyJob are. A DurationJob counts from the start of its scheduler:
// give it gocron.WithStartAt with a common time, or three schedulers run it three times in each interval.
//
// # What is not guaranteed
//
// As with every lock, a paused process may go on writing after it has lost its lock or term. Tasks made by
// [Locker.Task] and [Elector.Task] have their context canceled before another scheduler can start the same job, except
// while their process is paused: only a store that compares the token refuses these writes. See package fencing.
//
// A job given to gocron.NewTask directly, without Task, hears nothing of a loss: gocron has no way to pass it on.
package gocronlock
