package layout

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

// Keyspace says where the entries of one name stand.
type Keyspace struct {
	Kind    holdfast.Kind
	Name    string // as it was given: a name, or a foreign prefix
	Entries string // what the keys of all entries begin with; ends in "/"
	Claims  string // what the keys of all claims begin with: see ClaimKey
	Foreign bool   // every key below Entries counts as an entry, as with etcd's concurrency package

	// Verbatim: the value of an entry is the candidate's data and nothing else, because etcd's own observers read it. So
	// it has no place for a Notice. (etcd's own locks have empty values and ignore those of others.)
	Verbatim bool
}

// Kinds are the kinds of names that have a queue.
var Kinds = []holdfast.Kind{
	holdfast.KindLock, holdfast.KindTree, holdfast.KindSemaphore, holdfast.KindElection, holdfast.KindShard,
}

const (
	endOfName = "/@" // begins what follows a name in a key; no segment of a name begins with "@"

	// readerMark begins the last part of a reader's key, and afterReaders is the first string behind all of them. So the
	// readers of a queue stand before all other entries, and a reader waits for one range of entries:
	//
	//	NAME/@/!s694d-A   a reader
	//	NAME/@/694d-B     a writer: the range from NAME/@/" on
	readerMark   = "!s"
	afterReaders = "\""
)

// Named returns the queue of a name: see names.Check.
func Named(namespace string, kind holdfast.Kind, name string) Keyspace {
	own := Names(namespace, kind) + name + endOfName
	return Keyspace{Kind: kind, Name: name, Entries: own + "/", Claims: own + claims}
}

// At returns the queue of a foreign prefix: see names.CheckPrefix. Its claims stand in the namespace.
func At(namespace string, kind holdfast.Kind, prefix string) Keyspace {
	entries := prefix + "/"
	return Keyspace{
		Kind: kind, Name: prefix, Entries: entries, Claims: namespace + foreignClaims + entries,
		Foreign: true, Verbatim: kind == holdfast.KindElection,
	}
}

// Names is what the keys of all names of a kind begin with.
func Names(namespace string, kind holdfast.Kind) string { return namespace + "/" + segment(kind) + "/" }

// segment says in keys what the name is of.
func segment(kind holdfast.Kind) string {
	if kind == holdfast.KindSemaphore {
		return "sem"
	}
	return string(kind)
}

// Of returns the queue of an entry in a namespace, and false for any other key.
func Of(namespace, key string) (Keyspace, bool) {
	q, found := nameOf(namespace, key)
	return q, found && q.isEntry(key)
}

// About returns the queue of an entry, a claim or a limit in a namespace, and false for any other key.
func About(namespace, key string) (Keyspace, bool) {
	q, found := nameOf(namespace, key)
	isLimit := q.Kind == holdfast.KindSemaphore && key == q.LimitKey()
	return q, found && (q.isEntry(key) || q.IsClaim(key) || isLimit)
}

// nameOf returns the queue of the name that a key in a namespace is below.
func nameOf(namespace, key string) (Keyspace, bool) {
	rest, found := strings.CutPrefix(key, namespace+"/")
	first, rest, _ := strings.Cut(rest, "/")
	i := slices.IndexFunc(Kinds, func(kind holdfast.Kind) bool { return segment(kind) == first })
	name, _, below := strings.Cut(rest, endOfName)
	if !found || !below || i < 0 {
		return Keyspace{}, false
	}
	return Named(namespace, Kinds[i], name), true
}

func (q Keyspace) isEntry(key string) bool { return strings.HasPrefix(key, q.Entries) || q.IsTurn(key) }

// Check returns why the queue cannot be used, or nil: a *holdfast.NameError.
func (q Keyspace) Check() error {
	if q.Foreign {
		return names.CheckPrefix(q.Kind, q.Name)
	}
	return names.Check(q.Kind, q.Name)
}

// String names the queue for people.
func (q Keyspace) String() string { return string(q.Kind) + " " + names.Quote(q.Name) }

// Own is what all keys of a name begin with: those of its entries and of what stands beside them.
func (q Keyspace) Own() string { return strings.TrimSuffix(q.Entries, "/") }

// All returns the range of all entries.
func (q Keyspace) All() (from, end string) { return q.Entries, clientv3.GetPrefixRangeEnd(q.Entries) }

// Writers returns the range of all other entries.
func (q Keyspace) Writers() (from, end string) {
	return q.Entries + afterReaders, clientv3.GetPrefixRangeEnd(q.Entries)
}

// The random part of a key is of rand.Text: it has idNonce of the nonceLetters.
const (
	idNonce      = 16
	nonceLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
)

// NewID returns the last part of a new key: no other entry has it.
func NewID(lease clientv3.LeaseID) string {
	return fmt.Sprintf("%x-%s", int64(lease), rand.Text()[:idNonce])
}

// Keys are the keys of an exclusive entry, and of its claim.
func (q Keyspace) Keys(id string) (entry, claim string) { return q.Entries + id, q.Claims + id }

// ReaderKey is the key of a reader's entry.
func (q Keyspace) ReaderKey(id string) string { return q.Entries + readerMark + id }

// PermitKey is the key of a permit with that weight.
func (q Keyspace) PermitKey(weight int, id string) string {
	return q.Entries + strconv.Itoa(weight) + "-" + id
}

// LeaseOf returns the lease of an entry, by its key. It reports false for an entry of another client: its key has
// another form.
func LeaseOf(key string) (id clientv3.LeaseID, ours bool) {
	hex, nonce, _ := strings.Cut(withoutMode(lastPart(key)), "-")
	if len(nonce) != idNonce || strings.Trim(nonce, nonceLetters) != "" { // of a UUID or of etcd's own lease-ID keys, say
		return clientv3.NoLease, false
	}
	lease, err := strconv.ParseInt(hex, 16, 64)
	return clientv3.LeaseID(lease), err == nil
}

// withoutMode cuts off what stands before the lease in the last part of a key: the mark of a reader, or the weight of a
// permit.
func withoutMode(part string) string {
	if weight, rest, _ := strings.Cut(part, "-"); strings.Contains(rest, "-") && weightIn(weight) > 0 {
		return rest
	}
	return strings.TrimPrefix(part, readerMark)
}

// IsReader reports whether an entry of ours is a reader's.
func IsReader(key string) bool { return strings.HasPrefix(lastPart(key), readerMark) }

// WeightOf returns the weight of a permit, by its key; 0 for a key of another form.
func WeightOf(key string) int {
	weight, _, _ := strings.Cut(lastPart(key), "-")
	return weightIn(weight)
}

// weightIn returns the weight that is written, or 0. "03" is none: a put compares the text of a limit.
func weightIn(text string) int {
	if n, err := strconv.Atoi(text); err == nil && ValidLimit(n) && strconv.Itoa(n) == text {
		return n
	}
	return 0
}

func lastPart(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

const sessions = "/session/" // follows the namespace

// SessionKeys is what the session keys of a namespace begin with.
func SessionKeys(namespace string) string { return namespace + sessions }

// SessionKey returns the session key of a lease.
func SessionKey(namespace string, id clientv3.LeaseID) string {
	return namespace + sessions + strconv.FormatInt(int64(id), 16)
}
