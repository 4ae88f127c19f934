// Package leftovers is what unanswered requests of a session may leave in etcd, and how it is removed.
//
// A request without a reply may have been carried out, or may be at any later time.
//
//   - The put of an entry is sent again until it is answered. Its key belongs to one attempt at a time, so a read finds
//     what an earlier copy did. Keys says which keys are in use, and which can be used again.
//   - The put compares the mod revision of the session key, the gate. When an attempt ends with an unanswered copy, the
//     Sweeper puts the session key again. From then on the copy does nothing. Then the Sweeper has the entry removed,
//     if it stands.
//   - A replaced KV, as that of etcd's package namespace, repeats a put by itself. Its first copy may pass the gate
//     after the entry was released: rev 10: the second copy puts · rev 12: the entry is released · rev 15: the first
//     copy puts. No caller waits for that reply, and the session renews its lease, so the name would stay taken. The
//     Scanner lists the keys of the lease and hands to the Sweeper the entries that no attempt accounts for. Row 53 of
//     docs/guarantees.md needs it. The session's own KV does not repeat a Txn.
//   - Whatever is missed expires with the lease.
package leftovers
