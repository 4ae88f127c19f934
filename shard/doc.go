// Package shard shares N shards (partitions, tenants, keys of controllers) among the processes that are there: each
// shard has one owner at a time, a process that joins takes its part, and a process that leaves hands its part over.
//
//	err := shard.New(sess, "orders", 64).Run(ctx, func(ctx context.Context, s *shard.Shard) error {
//		return consume(ctx, s.Index(), s.Token())
//	})
//
// Each shard is a lock of its own, in the same kind of queue as a locker.Mutex, with its fencing token. A [Shard] is a
// fencing.Holder. The members stand in a group of package member. Each member computes its shards from the names and
// capacities of all, and from the wishes of operators: it queues for its own, and hands over the others. There is no
// leader. A member that joins takes no shard until no other has joined for Options.Settle, so a fleet that starts moves
// none.
//
// A [Reader] needs no session. It says from memory who owns a shard, to send a request to the process in charge:
//
//	owner, err := observer.OwnerOf(key)
//
// # Guarantees
//
//   - Two members never both hold a shard. This is what a locker.Mutex guarantees, and it does not depend on what the
//     members see of each other: where their views differ, a hand-over waits.
//   - The functions of one shard in one call of Run never overlap.
//   - Once all see the same members and these have settled, each shard belongs to one of them, and no load is further
//     than one shard from the member's part by weight, if no MaxShards, Zone or pin prevents it.
//   - A shard is released after its function has returned, or DrainTimeout after its context has ended.
//
// # Not guaranteed
//
//   - What a Mutex does not guarantee, either: work may go on after its context has ended, beside the next owner's.
//     Only a fencing token refuses it.
//   - An owner at any moment. A shard has none from the release to the next grant, until the first members have
//     settled, and, after its owner has died, until the lease ends and for LockDelay. With Options.Rejoin it has none
//     while its process is restarted. If its owner's function fails again and again, it stays with that owner.
//   - Members of one name count as one.
//   - Where an owner's lease was revoked, by hand or by a deposed leader of etcd, that the owner is told before the
//     next one holds, if its messages are lost meanwhile: all others wait for LockDelay, and no longer.
//   - One owner of each key, if the number of shards is changed by hand. "holdfast shards resize" refuses while members
//     run; delete the key of the number only when none does.
//
// # What it costs
//
// At rest a member sends what its session does for as many locks, and reads the list of members once in five minutes.
// It has a goroutine for itself, one for each shard it waits for, and two for each shard it holds. Each member is told
// of each change of the members. Then each shard that moves costs a put, a watch and a removal, sent in batches.
package shard
