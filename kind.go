package holdfast

// Kind is what a name is of. The lock, the tree lock, the semaphore, the election and the shard of one name have
// nothing in common.
type Kind string

const (
	// KindLock is a locker.Mutex or locker.RWMutex, also of a locker.Set.
	KindLock Kind = "lock"
	// KindTree is a locker.TreeMutex. It has an entry in the queue of its path, and a reader's in that of each path
	// above.
	KindTree Kind = "tree"
	// KindSemaphore is a locker.Semaphore. Its keys in etcd are below NAMESPACE/sem/.
	KindSemaphore Kind = "semaphore"
	// KindElection is an election.Election.
	KindElection Kind = "election"
	// KindShard is one shard of a shard.Shards. Its name is that of the shards and its index: "orders/7".
	KindShard Kind = "shard"
)
