package reads

import (
	"bytes"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Meta reads a key without its value.
func Meta(key string) clientv3.Op { return clientv3.OpGet(key, clientv3.WithKeysOnly()) }

// Stood reads whether a key stood at a revision; 0: now.
func Stood(key string, at int64) clientv3.Op {
	return clientv3.OpGet(key, clientv3.WithRev(at), clientv3.WithCountOnly())
}

// IsEntry reports whether kv is the entry that was created at rev.
func IsEntry(kv *mvccpb.KeyValue, rev int64) bool { return kv != nil && kv.CreateRevision == rev }

// CreatedAt is true in a Txn while key has the value that was created at rev; with rev 0, while the key does not exist.
func CreatedAt(key string, rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", rev)
}

// IsEnd reports whether an event is the deletion of an entry. Keys are used again, and a watch on a member that lags
// also tells what came before it was created: perhaps the deletion of an earlier entry at this key. Who judged by that
// revision would hold beside the present one.
func IsEnd(event *clientv3.Event, entry *mvccpb.KeyValue) bool {
	return event.Type == clientv3.EventTypeDelete && bytes.Equal(event.Kv.Key, entry.Key) &&
		event.Kv.ModRevision > entry.CreateRevision
}
