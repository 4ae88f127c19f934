// Package queue is the one algorithm of this module: entries under a prefix in
// etcd, ordered by create revision, each waiting for the one right ahead of it.
//
//	local line                 etcd, under NAME/@/
//	goroutine 3  ─┐
//	goroutine 2  ─┼─ waits     694d…-x7Q (rev 120)   another process, holds
//	goroutine 1  ─┴─ head ──▶  5e1a…-b2K (rev 131)   watches the one above
//
// One file, one idea:
//
//	name.go     which names there are
//	queue.go    a queue: its keys and the reads over it
//	acquire.go  from the end of the line to a hold
//	line.go     goroutines of one session: one entry between them
//	entry.go    one attempt's entry, and how far it has come
//	put.go      into the queue, once, however often it is sent
//	place.go    what stands ahead, how that left, and the lock delay
//	wait.go     waiting for the entry ahead
//	stream.go   which stream a watch goes on
//	remove.go   out of the queue
//	handoff.go  out of the queue, and the next in line into it
//	hold.go     a hold, and every way it ends
//	release.go  from a hold to nothing
//	commit.go   how the Txns of a session are sent: one by one, or in batches
//	keys.go     which keys entries have
//	sweeper.go  what attempts that are over may have left
//	census.go   what etcd's client has put by itself
//	closing.go  what leaves before a lease is revoked
//	audit.go    entries that were deleted under their holders
//	value.go    what an entry says of itself; since.go, since when it is held
//	record.go   what an auditor is told of a hold
//	measure.go  what telemetry is told of it
//	waited.go   what a call that gave up had waited for
//	update.go   another value under a hold's entry
//	requeue.go  from the front to the back; a hold given up for its holder
//	resume.go   whether a hold stands after its session was suspended
//	front.go    who holds, by one read; follow.go, all the time
//
// DESIGN.md at the module's root has the protocol and its reasons.
package queue
