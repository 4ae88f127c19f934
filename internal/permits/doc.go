// Package permits is how the permits of a semaphore are given: its limit, which stands in etcd, and what a permit knows
// of those ahead of it.
//
// A permit is an entry with a weight, which stands in its key. It may be held once the weights of all entries ahead and
// its own fit into the limit. Nothing joins ahead of an entry, so at one limit this stays true: position decides, and
// no write is needed for safety. tests/models/semmodel has the algorithm by itself and searches it.
//
// One waiter, as a rule, is the first one. It watches all permits ahead and the limit, and asks etcd once its weight
// fits. The others are far: each watches the entry ahead of it, until that one puts a mark.
//
// A permit ahead may go because its lease was revoked, while its holder does not know yet. The first waiter judges each
// one that goes. What has gone before it was first, the entry ahead of it has judged: its mark says up to which
// revision. An entry ahead that goes without a mark leaves that unknown, and then the lock delay begins.
//
// Package queue puts, reads and watches the entries.
package permits
