// Package hold is the time from the grant of an entry to its end: locks and terms are made of it. Package queue grants
// entries, and knows nothing of what becomes of them until they leave.
//
// A hold ends once: it is released, its lease is lost, its entry is deleted, an
// administrator has put a Notice into it, MaxHold has passed, or its work makes no
// progress. Its contexts are canceled before its entry is removed. That the entries
// still stand as they were put is asked in one Txn for many holds: as a rule by the
// read that proves a renewal, otherwise by the poller.
//
// # Where to begin
//
// hold.go is a hold, and its life, which all holds of a Set have in common; entry.go is what it holds. release.go ends
// it, and its entry leaves; loss.go tells of what else has ended it. While it lasts: poll.go asks, also by renewals,
// roster.go about which holds; notice.go, held.go, idle.go MaxIdle. minhold.go is about names that stay taken after a
// release, downgrade.go about a writer that goes on as a reader, term.go about elections. report.go has what is
// recorded; lastrun.go when a recurring job last ran, in one key beside its name's entries.
//
// held.go writes to the entry of each hold that has lasted a second since when it is held: the FOR of holdfast ls
// counts from it, and etcd keeps no times. Without it FOR would count from when the entry queued, and a long wait would
// look like a long hold.
package hold
