// Package member registers processes in groups: each member is a key on its session's lease, and comes back by itself
// when the session gets a new lease.
//
//	m, err := member.Join(ctx, sess, "workers", member.Options{Value: "10.0.0.7:8080"})
//	…
//	defer m.Leave(context.Background())
//
// A [Reader] needs no session, and a role for reading alone. It lists a group, watches it, or keeps it in memory:
//
//	group, err := member.NewReader(cli, "workers").Members(ctx)
//
// # Guarantees
//
//   - While a session is connected, its members stand in etcd. After a loss each is put again as soon as a new lease
//     has followed; until then it is missing.
//   - When a process has died, its key goes with its lease, at most the TTL after its last renewal.
//   - Join, Update, SetCapacity and Retire return nil only after etcd has confirmed the key. They take effect in the
//     order of the calls, also when replies are lost, and nothing is put after Leave has returned nil.
//   - The watch of a Reader does not stay behind: after a lost watch or a compaction it reads the whole group again,
//     and tells what changed in between as one change.
//
// # Not guaranteed
//
//   - Exclusion. Two processes may join under one name, and a list is true at its revision only. Use a lock or an
//     election for work of one process.
//   - Health. A member is there until its lease ends, alive or not.
//   - After someone deletes a member's key by hand, it is put again with the next Update, Retire or lease, not before.
//
// # What it costs
//
// At rest a member sends nothing beyond what its session does, and has one goroutine. Watch and Observer have one
// watch, and read the group once in a third of ReaderOptions.MaxAge. With Options.Rejoin a member has another lease and
// goroutine, and a renewal in each half of Rejoin.
package member
