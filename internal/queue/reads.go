package queue

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// scope says which entries a queue has, and which of them exclude an entry put through it.
type scope struct {
	At     layout.Queue
	Reader bool // entries put through it do not exclude one another

	// Unclaimed: there are no claims, because this client has no right to them. Below a foreign prefix they stand
	// elsewhere than the entries.
	Unclaimed bool
}

// conflicting returns the range of the entries that exclude an entry put through the queue.
func (s scope) conflicting() (from, end string) {
	if s.Reader {
		return s.At.Writers()
	}
	return s.At.All()
}

// conflictingClaims returns the range of the claims of such entries.
func (s scope) conflictingClaims() (from, end string) {
	if s.Reader {
		return s.At.WritersClaims()
	}
	return s.At.AllClaims()
}

// oldest reads the entry created first, the holder's, with its value.
func (s scope) oldest() clientv3.Op {
	opts := clientv3.WithFirstCreate()
	if s.At.Kind != holdfast.KindElection { // the two entries of a Downgradable have one create revision: see holderIn
		opts = append(opts, clientv3.WithLimit(2))
	}
	return clientv3.OpGet(s.At.Entries, opts...)
}

// holderIn returns the holder's entry out of the reply to oldest; nil if there is none.
func holderIn(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 2 && kvs[0].CreateRevision == kvs[1].CreateRevision && layout.IsReader(string(kvs[0].Key)) {
		return kvs[1]
	}
	return requests.First(kvs)
}

// nearest reads the youngest conflicting entry created before a revision; 0: of all. For any choice by create revision
// the server goes through all keys of the range.
func (s scope) nearest(created int64) clientv3.Op {
	from, end := s.conflicting()
	return createdBefore(from, end, created, clientv3.WithLimit(1), youngestFirst)
}

// ahead reads the conflicting entries created before a revision; 0: all.
func (s scope) ahead(created int64, opts ...clientv3.OpOption) clientv3.Op {
	from, end := s.conflicting()
	return createdBefore(from, end, created, opts...)
}

// maxClaims is how many claims one look reads: some 1.5 MB of keys. If there are more, another look follows.
const maxClaims = 1 << 14

// claimsAhead reads the keys of the conflicting claims created before a revision.
func (s scope) claimsAhead(created int64) clientv3.Op {
	from, end := s.conflictingClaims()
	return createdBefore(from, end, created, clientv3.WithLimit(maxClaims))
}

func createdBefore(from, end string, created int64, opts ...clientv3.OpOption) clientv3.Op {
	opts = append(opts, clientv3.WithRange(end), clientv3.WithKeysOnly())
	if created > 0 {
		opts = append(opts, clientv3.WithMaxCreateRev(created-1))
	}
	return clientv3.OpGet(from, opts...)
}

// youngestKeys reads what a put needs to know: does anything conflict, and what is the youngest entry?
func (s scope) youngestKeys() []clientv3.Op {
	from, end := s.conflicting()
	claims, endOfClaims := s.conflictingClaims()
	if !s.At.Foreign {
		// Entries and claims are one range. An entry and its claim are as young as each other, so if there is an entry, it
		// is among the two youngest keys, unless two dead claims are younger.
		return []clientv3.Op{createdBefore(from, endOfClaims, 0, clientv3.WithLimit(2), youngestFirst)}
	}
	ops := []clientv3.Op{createdBefore(from, end, 0, clientv3.WithLimit(1), youngestFirst)}
	if !s.Unclaimed {
		ops = append(ops, createdBefore(claims, endOfClaims, 0, clientv3.WithLimit(1)))
	}
	return ops
}

// before is what the reply to youngestKeys says.
type before struct {
	entry  *mvccpb.KeyValue // the youngest entry; nil: there is none, or it is not known
	claims []deadClaim      // if entry is nil, some conflicting claims; the oldest may not be dead
	free   bool             // neither an entry nor a claim conflicts
	count  int64            // of entries; dead claims are counted in halves
}

// before takes the replies to youngestKeys, from reply i on.
func (s scope) before(r requests.Reply, i int) before {
	youngest := r.Range(i)
	b := before{free: youngest.Count == 0, count: youngest.Count}
	claims := youngest.Kvs
	switch {
	case s.At.Foreign:
		b.entry, claims = requests.First(youngest.Kvs), nil
		if !s.Unclaimed {
			of := r.Range(i + 1)
			b.free, claims = b.free && of.Count == 0, of.Kvs
		}
	default:
		b.count = (b.count + 1) / 2 // each entry has a claim
		for _, kv := range youngest.Kvs {
			if !s.At.IsClaim(string(kv.Key)) {
				b.entry, claims = kv, nil
				break
			}
		}
	}
	for _, kv := range claims {
		b.claims = append(b.claims, deadClaim{key: string(kv.Key), rev: kv.CreateRevision})
	}
	return b
}

var youngestFirst = clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend)

// Meta reads a key without its value.
func Meta(key string) clientv3.Op { return clientv3.OpGet(key, clientv3.WithKeysOnly()) }

// createdAt is true in a Txn while key has this create revision; with rev 0, while the key does not exist.
func createdAt(key string, rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", rev)
}
