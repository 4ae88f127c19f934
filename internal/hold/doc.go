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
// hold.go is a hold, entry.go what it holds, life.go its time, which all holds of a Set have in common. release.go ends
// it, removal.go is how its entry leaves. While it lasts: poll.go, roster.go which holds are asked about, errand.go
// by renewals; notice.go, held.go, idle.go MaxIdle. minhold.go is about names that stay taken after a release,
// downgrade.go about a writer that goes on as a reader, term.go about elections. report.go has what is recorded,
// history.go what etcd's history adds to that after a loss.
package hold
