// Package etcdtest runs etcd inside a test, and breaks the connection to it in every way that matters to a program that
// holds locks.
//
//	func TestServiceStopsWhenItLosesItsLock(t *testing.T) {
//		srv := etcdtest.Start(t)           // a real etcd, in tens of milliseconds
//		link := srv.Link(t)                // a way to it that can fail
//		svc := StartService(link.Client()) // an ordinary *clientv3.Client
//		srv.WaitForKeys(t, "locks/", 1)    // the service holds its lock
//
//		link.BlackHole()
//		<-svc.Stopped()
//	}
//
// # What is real and what is not
//
// The members are those of go.etcd.io/etcd/server/v3/embed, so are their answers. They differ from etcd in production in
// speed only: raft ticks every 10 ms and elects after 100 ms, which makes 1 s the smallest TTL of a lease; nothing waits
// for the disk unless [Options] say so. (A busy machine may therefore see a Cluster change its leader for no reason, which
// a program has to bear in any case.) Clients are ordinary ones too, except that they log nothing and do not wait for
// long before they connect again.
//
// # Faults
//
// A [Link] has faults of two kinds, which may be combined. On the network, to whoever connects to [Link.Endpoints]:
//
//	Cut               connections are reset, new ones too
//	BlackHole         nothing arrives, nobody is told
//	BlackHoleReplies  half open: requests arrive and are carried out, answers do not come back
//	Delay             everything arrives later
//
// To single RPCs of the clients of the link, chosen by method and by what is in the request:
//
//	LoseRequest  it was never sent, the caller gets Unavailable
//	LoseReply    it was carried out, but the caller gets Unavailable, or hears nothing
//	Hold         it arrives when the test says so, long after the caller has given up if need be
//	Stall        a method, say LeaseKeepAlive, is in a black hole while the others work
//
// Heal ends them. A fault that holds bytes or requests does not lose them: they arrive after healing, as they would over
// TCP, and may surprise a program that has given them up. Programs that take "no answer" for "not done" are found so.
//
// Members can be stopped, as by a crash, and restarted: a [Server] that stands alone as well as those of a [Cluster]. With
// [Options].Processes they can be paused, too.
//
// The members of a Cluster can be cut off from each other with [Cluster.Partition], while clients reach all of them, and
// one can be replaced by a new one without data with [Cluster.Replace].
//
// # Tests that do not sleep
//
// Wait for what the test is about: [Server.WaitForKeys] until something is held or queued, [Link.Wait] until an RPC was
// sent, [Held.Arrived] until it is on hold. [Link.Count] is for budgets of RPCs. What really happened is in etcd's own
// history: a [Recorder] knows every put and delete with its revision, so who held what, and when.
//
// # Cleaning up
//
// Everything ends with the test, in the right order, and leaves no goroutine, no port and no file behind: a test that uses
// goleak passes. The exception are etcd's own v3lock and v3election services: a call to one starts a session inside the
// member, whose goroutines the member does not join when it stops, so goleak reports them. Programs and examples, which
// have no [testing.TB], use [New], [NewCluster], [Server.NewLink] and close what they get.
package etcdtest
