// Package etcdfake is an in-memory etcd for tests in virtual time.
//
// A [Server] is the cluster. Each [Link] is one connection to it, with faults of its own, and has a [*clientv3.Client]
// whose KV, Lease and Watcher work. No socket, file or real clock is involved: in a bubble of [testing/synctest] an
// hour of renewals takes milliseconds, and a test can lose exactly the reply it means to lose. [Test] runs a test in
// such a bubble:
//
//	func TestServiceStops(t *testing.T) {
//		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
//			link := srv.Link()
//			sess, err := session.New(t.Context(), link.Client(), &session.Options{Clock: session.MonotonicClock()})
//			...
//			link.BlackHole() // what does the service do now?
//			time.Sleep(15 * time.Second)
//			...
//		})
//	}
//
// A session in a bubble needs session.MonotonicClock, since the default clock also reads the real boot time.
//
// Outside a bubble the package works in real time. In a bubble that a test makes itself, create and close the Server
// and everything that uses it inside; and read the documentation of Test about the race detector.
//
// # Common faults in one line
//
//	srv.RevokeHolder("holdfast/lock/NAME/@/")      // the holder loses its lock now
//	release := srv.Occupy("holdfast/lock/NAME/@/") // another client holds the lock, until release
//	link.BlackHole()                               // this client's packets are dropped, until link.Heal
//	link.LoseReply("Txn", 1, codes.Unavailable)    // one transaction is carried out and looks failed
//	srv.ChangeLeader(3 * time.Second)              // a new leader; the old one acknowledges renewals for 3 s
//
// Faults of one connection are methods of [Link], those of the whole cluster methods of [Server]. [Link.Plan] decides
// the fate of every single RPC, for instance from a seeded random source.
//
// # How faithful it is
//
// Requests and replies are those of etcd 3.7: a conformance suite sends the same random operations to this package and
// to an embedded etcd, and expects the same replies and errors. That covers Put, Range with every option, DeleteRange,
// nested Txn, reads of old revisions and compaction; leases; watches from now or from an old revision, with filters,
// previous values, creation notices, compaction, cancellation, resumption after a lost connection, and require-leader.
// A lease expires exactly at its TTL, which is the earliest moment at which etcd may expire it. On the client's side,
// KV and Lease are clientv3's own code, of version 3.6 or 3.7; its retries of reads, grants and revocations are
// imitated.
//
// # What it does not do
//
//   - Members, Raft, disks. There is one logical store, and the leader is a term number. No read returns stale data,
//     not even a serializable one.
//   - Authentication, quotas, alarms, the limit on the size of a request, learners. The Cluster, Auth and Maintenance
//     fields of the client are nil.
//   - Range streams (Client.GetStream panics) and fragmented watch responses. Progress notifications are sent only when
//     RequestProgress asks for them.
//   - Delays of etcd's own: it looks for expired leases every 500 ms, and serves a watch from an old revision up to
//     100 ms late.
//   - Lease checkpoints, and a separate watch stream for each set of outgoing metadata.
//   - Freeing memory: the whole history is kept for [Server.History], even after a compaction.
//
// To test against a real etcd, in real time, use package etcdtest.
package etcdfake
