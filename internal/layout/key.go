package layout

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// idNonce is the length of the random part of a key.
const idNonce = 16

// NewID returns a last part of a key that no other entry has.
func NewID(lease clientv3.LeaseID) string {
	return fmt.Sprintf("%x-%s", int64(lease), rand.Text()[:idNonce])
}

// Key is the key of an entry that excludes all others.
func (q Queue) Key(id string) string { return q.Entries + id }

// ReaderKey is the key of a reader's entry.
func (q Queue) ReaderKey(id string) string { return q.Entries + readerMark + id }

// PermitKey is the key of a permit with that weight.
func (q Queue) PermitKey(weight int, id string) string {
	return q.Entries + strconv.Itoa(weight) + "-" + id
}

// IsOn reports whether a key is that of an entry of this queue and of ours, which was put under that lease.
func (q Queue) IsOn(lease clientv3.LeaseID, key string) bool {
	id, ours := LeaseOf(key)
	return ours && id == lease && strings.TrimSuffix(key, lastPart(key)) == q.Entries
}

// LeaseOf returns the lease under which an entry was put, which its key names. It reports
// false for an entry of another client, whose key has another form.
func LeaseOf(key string) (id clientv3.LeaseID, ours bool) {
	hex, nonce, _ := strings.Cut(withoutMode(lastPart(key)), "-")
	if !isNonce(nonce) { // a UUID, say
		return clientv3.NoLease, false
	}
	lease, err := strconv.ParseInt(hex, 16, 64)
	return clientv3.LeaseID(lease), err == nil
}

// isNonce reports whether s has the form of the random part of a key, which
// rand.Text makes. An entry of another client, such as etcd's own lease-ID keys or
// a UUID, does not.
func isNonce(s string) bool {
	return len(s) == idNonce && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
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

// WeightOf returns the weight of a permit, which its key names; 0 for a key of another form.
func WeightOf(key string) int {
	weight, _, _ := strings.Cut(lastPart(key), "-")
	return weightIn(weight)
}

// weightIn returns the weight that is written; 0 if none is.
func weightIn(text string) int {
	if n, err := strconv.Atoi(text); err == nil && ValidLimit(n) {
		return n
	}
	return 0
}

func lastPart(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }
