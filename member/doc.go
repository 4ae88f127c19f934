// Package member registers processes in groups: each member is a key that goes with its session's lease, and comes back
// by itself when the session gets a new one.
//
//	m, err := member.Join(ctx, sess, "workers", member.Options{Value: "10.0.0.7:8080"})
//	…
//	defer m.Leave(context.Background())
//
// A [Reader] needs no session, and a role that only reads. It lists a group, watches it, or keeps it in memory:
//
//	group, err := member.NewReader(cli, "workers").Members(ctx)
//
// # Guarantees
//
//   - While a session is connected, its members stand in etcd. After a loss each is put again as soon as a new lease
//     has followed; until then it is missing.
//   - The key of a process that has died goes with its lease, at most the TTL after its last renewal.
//   - Join, Update, SetCapacity and Retire return nil only after etcd has confirmed the key. They take effect in the
//     order of the calls, also when replies are lost, and nothing is put after Leave has returned nil.
//   - A Reader that watches does not stay behind: after a lost watch or a compaction it reads the whole
//     group again. What changed in between is told as one change.
//
// # Not guaranteed
//
//   - Exclusion. Two processes may join under one name, and a list is true at its revision only. What only one process
//     may do needs a lock or an election.
//   - That a member is alive or well: it is there until its lease ends. There are no health checks.
//   - A key that is deleted by hand is put again with the next Update, Retire or lease, not before.
//
// # What it costs
//
// At rest a member sends nothing beyond what its session does, and has one goroutine. A Reader that watches has one
// watch, and reads the group once in a third of ReaderOptions.MaxAge. With Options.Rejoin a member has another lease
// and goroutine, and a renewal in each half of Rejoin.
package member
