// Package hold is the time from the grant of an entry to its end: locks and terms are made of it. Package queue grants
// entries, and knows nothing of what becomes of them until they leave.
//
// A hold ends once: it is released, its lease is lost, its entry is deleted, an administrator has put a notice into it,
// or MaxHold has passed. Its contexts are canceled before its entry is removed. One Txn asks for many holds whether the
// entries still stand as they were put: as a rule the read that proves a renewal, otherwise the poller's.
//
// # Where to begin
//
// hold.go begins a hold, tells its auditor, and has its life. release.go ends a hold, and its entry leaves; loss.go
// tells what else ends it. While it lasts, poll.go asks about it, also by renewals, and roster.go says when; entry.go
// has what is known of the entry, work.go the function that runs under it. minhold.go keeps a name taken after a
// release, detach.go puts a hold on a ticket, downgrade.go lets a writer go on as a reader, term.go is for elections
// alone. held.go writes into entries since when they are held: the FOR of holdfast ls counts from it, and would
// otherwise take a long wait for a long hold.
package hold
