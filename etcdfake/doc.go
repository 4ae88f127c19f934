// Package etcdfake is an in-memory etcd behind the interfaces of etcd's own Go
// client, for tests in virtual time.
//
// A [Server] is the cluster; each [Link] is one connection to it, with faults
// of its own, and gives a [*clientv3.Client] whose KV, Lease and Watcher work.
// Nothing here uses a socket, a file or the real clock: inside a
// testing/synctest bubble an hour of renewals takes milliseconds, and a reply
// can be lost at exactly the wrong moment. Outside a bubble it works as well,
// in real time.
//
//	synctest.Test(t, func(t *testing.T) {
//		srv := etcdfake.New(nil)
//		defer srv.Close()
//		link := srv.Link()
//		sess, err := session.New(t.Context(), link.Client(), &session.Options{Clock: session.MonotonicClock()})
//		...
//		link.BlackHole() // what does the service do now?
//		time.Sleep(15 * time.Second)
//		...
//	})
//
// Create the server and everything that uses it inside the bubble, and close
// it there. Sessions need session.MonotonicClock in a bubble: the default
// clock reads the real boot time too.
//
// # What is modelled
//
// Requests and answers are those of etcd v3.7; a conformance suite puts the
// same random operations to an embedded etcd and wants the same answers and
// errors. Key-value: Put, Range with every option, DeleteRange, nested Txn,
// reads of the past, compaction. Leases: with expiry at exactly the TTL, the
// earliest moment at which an etcd may. Watches: from now or from a revision,
// with filters, previous values, created notifications, compaction,
// cancellation, resumption after a lost connection, and require-leader. The
// client's part is clientv3's own code for KV and Lease; its repetition of
// reads, grants and revocations is imitated.
//
// Faults of one connection: see [Link]. Faults of all: see [Server]. A seeded
// schedule decides the fate of every single RPC through [Link.Plan].
//
// # What is not modelled
//
//   - Members, Raft, disks: there is one logical store. A leader is a term
//     number; changing it is one method. No read ever returns old data, be it
//     serializable or not.
//   - Authentication, quotas and alarms, the request size limit, learners,
//     maintenance, and the Cluster, Auth and Maintenance APIs: those fields of
//     the client are nil.
//   - Range streams (Client.GetStream) and fragments of watch responses.
//     Progress notifications are sent when RequestProgress asks for them, not
//     by themselves.
//   - Lease checkpoints, and the 500 ms by which etcd looks for expired leases.
//   - The 100 ms by which a watch from an old revision is served late.
//   - Several streams for watches with different outgoing metadata.
//   - Memory is not given back: the whole history is kept for
//     [Server.History], past a compaction too.
//
// A test of what a service does with a real cluster needs a real one: that is
// package etcdtest.
package etcdfake
