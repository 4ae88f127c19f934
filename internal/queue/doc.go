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
//	entry.go    one attempt's entry: put once, verified, removed for good
//	ids.go      which keys entries have
//	commit.go   how the Txns of a session are sent: one by one, or together
//	wait.go     waiting for the entry ahead
//	stream.go   which stream a watch goes on
//	waited.go   what a call that gave up had waited for
//	line.go     goroutines of one session: one entry between them
//	acquire.go  from the end of the line to a hold
//	hold.go     a hold, and every way it ends
//	release.go  from a hold to nothing
//	sweep.go    entries that etcd refuses to remove for good
//	audit.go    entries deleted under their holders
//	record.go   what an auditor is told of a hold
//	measure.go  what telemetry is told of it
//	update.go   another value under a hold's entry
//	requeue.go  from the front to the back; a hold given up for its holder
//	front.go    who holds, by one read
//	follow.go   who holds, all the time
//
// DESIGN.md at the module's root has the protocol and its reasons.
package queue
