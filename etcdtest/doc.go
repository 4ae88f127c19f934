// Package etcdtest runs a real etcd inside a test, and breaks the connection to it in the ways that matter to programs
// that hold locks.
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
//	srv.Stop()                                        // etcd crashes; srv.Restart
//	cluster.Partition(leader)                         // the leader is cut off from the other members
//
// # How real it is
//
// Members are those of go.etcd.io/etcd/server/v3/embed, in this process or, with [Options].Processes, in processes of
// their own. They differ from a default etcd in timing only: a heartbeat is 10 ms and an election timeout 100 ms, which
// makes 1 s the smallest TTL of a lease, and writes do not wait for the disk. [Options] has etcd's own values. With the
// short timeouts a busy machine may make a [Cluster] change its leader for no other reason, which a program has to
// tolerate anyway.
//
// Clients are ordinary ones, except that they do not log and that they reconnect within 100 ms.
//
// # Faults
//
// A [Link] has two kinds of faults, which can be combined. Network faults affect all connections to [Link.Endpoints]:
//
//	Cut               connections are reset, new ones too
//	BlackHole         packets are dropped in both directions
//	BlackHoleReplies  half open: requests are carried out, replies do not come back
//	Delay             everything arrives later
//
// RPC faults affect the link's clients; they are chosen by method and by the content of the request:
//
//	LoseRequest  the request is never sent, and its caller gets Unavailable
//	LoseReply    the request is carried out, but its caller gets Unavailable, or waits
//	Hold         the request arrives when the test says so, even if its caller has given up
//	Stall        one method, such as LeaseKeepAlive, hangs while the others work
//
// Heal ends them. Bytes and requests that a fault has held are not lost: they arrive after Heal, as TCP would
// retransmit them, and may surprise a program that has given them up. That finds programs that take "no reply" for "not
// done".
//
// A member can be stopped, as by a crash, and restarted; with [Options].Processes it can also be paused. In a Cluster,
// members can be cut off from each other ([Cluster.Partition]) while clients reach all of them, and members can be
// added, removed and replaced.
//
// # Waiting without sleeping
//
// Wait for the condition the test is about: [Server.WaitForKeys] until something is held or queued, [Link.Wait] until
// an RPC was sent, [Held.Arrived] until a request is held. [Link.Count] counts RPCs. What has really happened is in
// etcd's own history: [Server.Record] returns every put and delete with its revision, which tells who held what, and
// when.
//
// # What is left afterwards
//
// Start, StartCluster, Client, Link and Record clean up when the test ends. No port, file or goroutine of this package
// or of a member remains, so a test that uses goleak passes. There is one exception: a call of etcd's own v3lock or
// v3election service starts a session inside the member, and etcd does not join its goroutines when the member stops.
// In a test that calls one of these services goleak reports them.
//
// Programs and examples, which have no [testing.TB], use [New], [NewCluster] and [Server.NewLink], and close what they
// get.
//
// # What it does not do
//
//   - TLS and authentication: a test sets them up, TLS with Options.Configure, and makes its own client. Helpers such
//     as Keys use a plain connection without a user, and so do Add, Remove and Replace.
//   - Disk faults. A full store is Options.Configure with a small QuotaBackendBytes.
//   - Members need a Unix, [Options].Processes needs Linux.
package etcdtest
