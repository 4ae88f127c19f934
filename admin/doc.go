// Package admin shows who holds, who waits, and what becomes of them, to operators and to programs. It
// asks the holder of a lock to let go, and takes a lock away from a holder that does not answer:
// docs/operations.md says which of the two to use.
//
// An etcd client is all it needs: no session, and a role that may read the namespace. These write: [Client.Kick] and
// [Client.Remove]; for shards [Client.ResizeShards], [Client.DrainMember], [Client.UndrainMember] and
// [Client.MoveShard]. A client whose KV, Watcher and Lease were wrapped by client/v3/namespace works as well.
//
//	adm := admin.New(cli, admin.Options{})
//	q, err := adm.Show(ctx, holdfast.KindLock, "billing/job-7")
//	if err != nil {
//		return err
//	}
//	if h, held := q.Holder(); held {
//		fmt.Println(h, q.Waiting(), "waiting")
//	}
//
// # What is true, and when
//
// [Client.Show] shows one queue as it stood at one revision of etcd. [Client.List] and [Client.Sessions]
// read page by page, each page at its own revision. [Client.Events] tells each change in the order of
// etcd's history. Decide nothing by it that a fencing token should decide.
//
// The first entry of a queue is shown as its holder, unless a [DeadClaim] is ahead of it: the one before went without a
// release, and the first waits for a delay. One that was released is shown with TakenUntil while locker.Options.MinHold
// keeps its name taken. Owner, host, pid and times are what the process that queued wrote of itself, by its own clock:
// text for people, not proof.
package admin
