// Package layout says what stands in etcd: keys and values, how they are made and how they are read. Only
// internal/names knows of it, too: it has the rules for names, and the keys of the epoch and of sessions.
//
//	NAMESPACE/KIND/NAME/@/LEASE-NONCE         the entry of a lock ("lock"), a path ("tree"), a candidate ("election")
//	                                          or a shard ("shard", whose NAME ends in its index)
//	NAMESPACE/KIND/NAME/@/!sLEASE-NONCE       the entry of a reader
//	NAMESPACE/KIND/NAME/@claim/LEASE-NONCE    the claim of that entry; of a reader's @claim/sLEASE-NONCE
//	NAMESPACE/sem/NAME/@/WEIGHT-LEASE-NONCE   the entry of a permit ("semaphore")
//	NAMESPACE/sem/NAME/@turn/WEIGHT-LEASE-NONCE  of one that has waited; its claim is @claim/tWEIGHT-LEASE-NONCE
//	NAMESPACE/sem/NAME/@limit                 the limit of a semaphore
//	NAMESPACE/shard/NAME/@count               how many shards there are
//	NAMESPACE/member/GROUP/@/LEASE-NONCE      a member of a group; those of shards are in the group shard/NAME
//	NAMESPACE/KIND/NAME/@run                  the last run of a job
//	PREFIX/LEASE-NONCE                        an entry below a foreign prefix, beside those of etcd's own clients
//	NAMESPACE/claim/PREFIX/LEASE-NONCE        its claim
//	NAMESPACE/session/LEASE                   a session
//	NAMESPACE/epoch                           the fencing epoch
//
// Numbers of leases are hexadecimal. Values are JSON with a number of their format, "v"; the limit, the
// count and the epoch are decimal numbers.
package layout
