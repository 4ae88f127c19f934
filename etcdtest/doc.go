// Package etcdtest runs a real etcd inside a test, and breaks the connection to it in the ways that
// matter to programs that hold locks.
//
//	func TestServiceStopsWhenItLosesItsLock(t *testing.T) {
//		srv := etcdtest.Start(t)           // an etcd, in tens of milliseconds
//		link := srv.Link(t)                // a way to it that can fail
//		svc := StartService(link.Client()) // an ordinary *clientv3.Client
//		srv.WaitForKeys(t, "locks/", 1)    // the service holds its lock
//
//		link.BlackHole()
//		<-svc.Stopped()
//	}
//
// # Common faults in one line
//
//	srv.RevokeHolder(t, "holdfast/lock/NAME/@/")      // the holder loses its lock now
//	release := srv.Occupy(t, "holdfast/lock/NAME/@/") // another client holds the lock, until release
//	link.BlackHole()                                  // this client's packets are dropped, until link.Heal
//	link.LoseReply("Txn", 1, codes.Unavailable)       // one transaction is carried out and looks failed
//	link.Stall("LeaseKeepAlive")                      // renewals hang, all else works
//	srv.Stop()                                        // etcd crashes; srv.Restart
//	cluster.Partition(leader)                         // the leader is cut off from the other members
//
// Bytes and requests that a fault has held arrive after Heal, as TCP would retransmit them.
//
// # How real it is
//
// Members are those of go.etcd.io/etcd/server/v3/embed. They differ from a default etcd in timing: a
// heartbeat is 10 ms, an election timeout 100 ms, and so the smallest TTL of a lease 1 s; writes do
// not wait for the disk. A busy machine may make a Cluster change its leader. [Options] has etcd's own
// values.
//
// # Waiting without sleeping
//
// Wait for conditions: [Server.WaitForKeys] until something is held or queued, [Link.Wait] until an
// RPC was sent, [Held.Arrived] until a request is held. [Server.Record] returns etcd's own history.
//
// What takes a testing.TB cleans up when the test ends; no port, file or goroutine remains. (After a
// call of etcd's own v3lock or v3election service goleak reports goroutines that etcd does not join.)
// Programs use New, [NewCluster] and [Server.NewLink], and close what they get.
//
// # What it does not do
//
//   - TLS and authentication: set TLS with Options.Configure, and make the client. Helpers such as
//     Keys, Add, Remove and Replace use a plain connection without a user.
//   - Disk faults. For a full store set a small QuotaBackendBytes in Options.Configure.
//   - Members need a Unix, Options.Processes needs Linux.
package etcdtest
