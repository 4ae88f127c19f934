// Package etcdfake is an in-memory etcd for tests in virtual time.
//
// A Server is the cluster. Each Link is one client's way to it, with faults of its own, and has a
// *clientv3.Client whose KV, Lease, Watcher and MemberList work. [Test] runs a test in a bubble of
// testing/synctest, where an hour of renewals takes milliseconds:
//
//	func TestServiceStops(t *testing.T) {
//		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
//			link := srv.Link()
//			sess, err := session.New(t.Context(), link.Client(), session.Options{Clock: session.MonotonicClock()})
//			...
//			link.BlackHole() // what does the service do now?
//			time.Sleep(15 * time.Second)
//			...
//		})
//	}
//
// A session in a bubble needs session.MonotonicClock, since the default clock also reads the real boot
// time. Outside a bubble the package works in real time.
//
// # Common faults in one line
//
//	srv.RevokeHolder("holdfast/lock/NAME/@/")      // the holder loses its lock now
//	release := srv.Occupy("holdfast/lock/NAME/@/") // another client holds the lock, until release
//	link.BlackHole()                               // this client's packets are dropped, until link.Heal
//	link.LoseReply("Txn", 1, codes.Unavailable)    // one transaction is carried out and looks failed
//	link.Plan(f)                                   // f decides the fate of every RPC
//	srv.ChangeLeader(3 * time.Second)              // a new leader; the old one acknowledges renewals for 3 s
//	srv.Members()[1].Lag(time.Minute)              // one of several members (Options.Members) tells a minute late
//
// # How faithful it is
//
// Requests and replies are those of etcd 3.7, as a conformance suite checks. A lease expires exactly
// at its TTL, the earliest moment at which etcd may expire it. KV and Lease are clientv3's own code;
// its retries are imitated.
//
// # What it does not do
//
//   - Raft, disks: there is one logical store, the leader is a term number, no read returns stale data.
//     Several members are several ways to that store, which may hang, tell late, or be cut off. None of them
//     leads, none is added or removed, and a quorum is lost by LoseLeader only.
//   - Authentication, quotas, alarms, request sizes, learners. The client's Auth and Maintenance are nil,
//     and of its Cluster only MemberList works.
//   - Range streams (Client.GetStream panics), fragmented watch responses, unrequested progress
//     notifications, lease checkpoints, a watch stream for each set of outgoing metadata.
//   - etcd's delays: it looks for expired leases every 500 ms, and serves watches from old revisions
//     every 100 ms.
//   - Freeing memory: the whole history is kept for [Server.History].
package etcdfake
