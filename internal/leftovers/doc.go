// Package leftovers is what unanswered requests of a session may leave in etcd, and how it is removed.
//
// A request without a reply may have been carried out, or may be at any later time.
//
//   - The put of an entry is sent again until it is answered. Its key belongs to one attempt at a time, so a read finds
//     what an earlier copy did. Keys says which keys are in use, and which can be used again.
//   - The put compares the mod revision of the session key, the gate. When an attempt ends with an unanswered copy, the
//     Sweeper puts the session key again. From then on the copy does nothing. Then the Sweeper has the entry removed,
//     if it stands.
//   - A copy that etcd's client itself sends may pass the gate after its entry was released. The Scanner lists the keys
//     of the lease and hands to the Sweeper the entries that no attempt accounts for.
//   - Whatever is missed expires with the lease.
package leftovers
