package txns

import clientv3 "go.etcd.io/etcd/client/v3"

// Ops collects the operations of a Txn. Add tells the number by which the reply to an operation is read.
type Ops []clientv3.Op

// Add adds operations and returns the number of the first. The others follow it.
func (o *Ops) Add(ops ...clientv3.Op) (first int) {
	first = len(*o)
	*o = append(*o, ops...)
	return first
}
