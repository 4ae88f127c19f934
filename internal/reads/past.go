package reads

import (
	"bytes"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// What follows reads the past, for permits alone.

// OldestAheadAt reads the oldest conflicting entries created at maxCreate or before, as they stood at a revision, as
// many as limit; 0: of all, and in the order of their creation.
func (s Scope) OldestAheadAt(maxCreate, at, limit int64) clientv3.Op {
	return s.at(maxCreate, at, clientv3.WithKeysOnly(), clientv3.WithLimit(limit), oldest)
}

// YoungestAheadAt reads the youngest one, with its value.
func (s Scope) YoungestAheadAt(maxCreate, at int64) clientv3.Op {
	return s.at(maxCreate, at, clientv3.WithLimit(1), youngest)
}

func (s Scope) at(maxCreate, at int64, opts ...clientv3.OpOption) clientv3.Op {
	from, end := s.Conflicting()
	opts = append(opts, clientv3.WithRange(end))
	if maxCreate > 0 {
		opts = append(opts, clientv3.WithMaxCreateRev(maxCreate))
	}
	if at > 0 {
		opts = append(opts, clientv3.WithRev(at))
	}
	return clientv3.OpGet(from, opts...)
}

// Stood reads whether a key stood at a revision; 0: now.
func Stood(key string, at int64) clientv3.Op {
	return clientv3.OpGet(key, clientv3.WithRev(at), clientv3.WithCountOnly())
}

// IsEnd reports whether an event is the deletion of an entry, and not of an earlier one at its key.
func IsEnd(event *clientv3.Event, key []byte, created int64) bool {
	return event.Type == clientv3.EventTypeDelete && bytes.Equal(event.Kv.Key, key) && event.Kv.ModRevision > created
}
