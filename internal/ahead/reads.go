// Package ahead finds what stands ahead of an entry: reads.go has the operations of a Txn that read entries and claims,
// claims.go says which claims are dead. places.go is what people are told of their place in a queue: the algorithm does
// not use it, and it costs a read each time that it is told.
package ahead

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// Scope says which entries a queue has, and which of them exclude an entry that is put through it.
type Scope struct {
	At     layout.Queue
	Reader bool // entries that are put through it do not exclude one another

	// Unclaimed: there are no claims, because this client has no right to them. Below a foreign prefix they stand
	// elsewhere than the entries.
	Unclaimed bool
}

// Conflicting returns the range of the entries that exclude one that is put through the queue.
func (s Scope) Conflicting() (from, end string) {
	if s.Reader {
		return s.At.Writers()
	}
	return s.At.All()
}

// conflictingClaims returns the range of the claims of such entries.
func (s Scope) conflictingClaims() (from, end string) {
	if s.Reader {
		return s.At.WritersClaims()
	}
	return s.At.AllClaims()
}

// Oldest reads the entry of the queue that was created first, which holds, with its value. The two entries of a
// Downgradable have one create revision, so it reads two: see Holder.
func (s Scope) Oldest() clientv3.Op {
	opts := clientv3.WithFirstCreate()
	if s.At.Kind != holdfast.KindElection {
		opts = append(opts, clientv3.WithLimit(2))
	}
	return clientv3.OpGet(s.At.Entries, opts...)
}

// Holder returns the entry that holds out of the reply to Oldest; nil if there is none.
func Holder(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 2 && kvs[0].CreateRevision == kvs[1].CreateRevision && layout.IsReader(string(kvs[0].Key)) {
		return kvs[1]
	}
	return requests.First(kvs)
}

// Nearest reads the youngest conflicting entry created before an entry of that create revision; 0: of all. The server
// goes through all keys of the range for it, as it does for every choice by create revision.
func (s Scope) Nearest(created int64) clientv3.Op {
	from, end := s.Conflicting()
	return ahead(from, end, created, clientv3.WithLimit(1), youngest, clientv3.WithKeysOnly())
}

// Ahead reads the conflicting entries created before an entry of that create revision; 0: all.
func (s Scope) Ahead(created int64, opts ...clientv3.OpOption) clientv3.Op {
	from, end := s.Conflicting()
	return ahead(from, end, created, append(opts, clientv3.WithKeysOnly())...)
}

// ClaimsAhead reads the keys of the conflicting claims put before an entry of that create revision.
func (s Scope) ClaimsAhead(created int64) clientv3.Op {
	from, end := s.conflictingClaims()
	return ahead(from, end, created, clientv3.WithKeysOnly(), clientv3.WithLimit(MaxClaims))
}

func ahead(from, end string, created int64, opts ...clientv3.OpOption) clientv3.Op {
	opts = append(opts, clientv3.WithRange(end))
	if created > 0 {
		opts = append(opts, clientv3.WithMaxCreateRev(created-1))
	}
	return clientv3.OpGet(from, opts...)
}

// Youngest reads what a put needs to know: whether anything conflicts, and which entry is the youngest.
//
// Of a name it reads the two youngest keys of entries and claims, which are one range. An entry and its claim are as
// young as each other, so if there is an entry, it is among the two, unless two dead claims are younger.
func (s Scope) Youngest() []clientv3.Op {
	from, end := s.Conflicting()
	claimsFrom, claimsEnd := s.conflictingClaims()
	if s.At.Foreign {
		entry := clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(1), youngest)
		if s.Unclaimed {
			return []clientv3.Op{entry}
		}
		return []clientv3.Op{
			entry,
			clientv3.OpGet(claimsFrom, clientv3.WithRange(claimsEnd), clientv3.WithKeysOnly(), clientv3.WithLimit(1)),
		}
	}
	return []clientv3.Op{
		clientv3.OpGet(from, clientv3.WithRange(claimsEnd), clientv3.WithKeysOnly(), clientv3.WithLimit(2), youngest),
	}
}

// Before is what the reply to Youngest says.
type Before struct {
	Entry  *mvccpb.KeyValue // the youngest entry; nil: there is none, or it is not known
	Claims []Claim          // if Entry is nil, some of the claims that conflict; the oldest may not be dead
	Free   bool             // neither an entry nor a claim conflicts
	Count  int64            // of entries; dead claims are counted in halves
}

// Before reads the replies to Youngest, which begin at reply i.
func (s Scope) Before(r requests.Reply, i int) Before {
	first := r.Range(i)
	b := Before{Free: first.Count == 0, Count: first.Count}
	switch {
	case s.At.Foreign && !s.Unclaimed:
		claims := r.Range(i + 1)
		b.Free = b.Free && claims.Count == 0
		b.addClaims(claims.Kvs)
		fallthrough
	case s.At.Foreign:
		b.Entry = requests.First(first.Kvs)
		return b
	case b.Free:
		return b
	}
	b.Count = (b.Count + 1) / 2 // each entry has a claim
	for _, kv := range first.Kvs {
		if !s.At.IsClaim(string(kv.Key)) {
			b.Entry = kv
			return b
		}
	}
	b.addClaims(first.Kvs)
	return b
}

func (b *Before) addClaims(kvs []*mvccpb.KeyValue) {
	for _, kv := range kvs {
		b.Claims = append(b.Claims, Claim{Key: string(kv.Key), Rev: kv.CreateRevision})
	}
}

var youngest = clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend)

// Meta reads a key without its value.
func Meta(key string) clientv3.Op { return clientv3.OpGet(key, clientv3.WithKeysOnly()) }

// IsEntry reports whether kv is the entry that was created at rev.
func IsEntry(kv *mvccpb.KeyValue, rev int64) bool { return kv != nil && kv.CreateRevision == rev }

// CreatedAt is true in a Txn while key has the value that was created at rev; with rev 0, while the key does not exist.
func CreatedAt(key string, rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", rev)
}
