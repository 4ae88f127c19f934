package layout

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
)

// A claim is put beside each entry by the same Txn, so both have one create revision. It is on a lease of its own, and
// is deleted with the entry. So a claim without its entry tells: nothing was released.
//
//	rev 10  A puts entry and claim, and holds
//	rev 15  A's lease is revoked: its entry is gone, its claim stands
//	        who comes now waits for the lock delay, and deletes the claim
//
// Of a name, the claims are at NAME/@claim/, right behind the entries. In both, those of readers and those of writers
// are ranges: readers stand first among the entries, and last among the claims. So what conflicts with a reader is one
// range of keys, too: the entries of writers, then their claims.
//
// Below a foreign prefix no claim may stand, since etcd's own clients would wait for it as for an entry. There it is at
// NAMESPACE/claim/ followed by the key of its entry.
const (
	claims        = "claim/"  // follows NAME/@
	readersClaim  = "s"       // begins the last part of a reader's claim; those of writers begin with a digit of a lease
	foreignClaims = "/claim/" // follows the namespace
)

// ClaimKey is the key of the claim of the entry with that key.
func (q Keyspace) ClaimKey(entry string) string {
	part := strings.TrimPrefix(entry, q.Entries)
	if id, reader := strings.CutPrefix(part, readerMark); reader && !q.Foreign {
		part = readersClaim + id
	} else if q.Kind == holdfast.KindSemaphore && q.IsTurn(entry) {
		part = turnsClaim + lastPart(entry)
	}
	return q.Claims + part
}

// EntryOf is the key of the entry of a claim.
func (q Keyspace) EntryOf(claim string) string {
	part := strings.TrimPrefix(claim, q.Claims)
	if id, reader := strings.CutPrefix(part, readersClaim); reader && !q.Foreign {
		part = readerMark + id
	} else if id, turn := strings.CutPrefix(part, turnsClaim); turn && q.Kind == holdfast.KindSemaphore {
		return q.TurnKey(q.Entries + id)
	}
	return q.Entries + part
}

// IsClaim reports whether a key is that of a claim of the queue.
func (q Keyspace) IsClaim(key string) bool { return strings.HasPrefix(key, q.Claims) }

// AllClaims returns the range of all claims.
func (q Keyspace) AllClaims() (from, end string) {
	return q.Claims, clientv3.GetPrefixRangeEnd(q.Claims)
}

// WritersClaims returns the range of the claims of all entries but readers'.
func (q Keyspace) WritersClaims() (from, end string) {
	if q.Foreign {
		return q.Claims + afterReaders, clientv3.GetPrefixRangeEnd(q.Claims)
	}
	return q.Claims, q.Claims + readersClaim
}

// Claim is what a claim says to those who wait behind it when its entry is gone. What ends earlier counts; a waiter
// takes the larger of each and its own.
type Claim struct {
	LockDelay  time.Duration // to be waited for once the session key of its holder is gone, too
	ToldWithin time.Duration // to be waited for in any case: by then the holder knows: its entry is gone

	// Session is the lease of the session that holds, if its Attach has put the claim again. 0: the key names it.
	Session clientv3.LeaseID
}

// maxDelay bounds what a claim may ask others to wait for.
const maxDelay = 10 * time.Minute

type encodedClaim struct {
	V          int    `json:"v"`
	LockDelay  int64  `json:"lock_delay_ms"`
	ToldWithin int64  `json:"told_within_ms"`
	Session    string `json:"session,omitempty"` // in hexadecimal
}

// Encode returns the claim as it is written in etcd.
func (c Claim) Encode() string {
	enc := encodedClaim{V: format, LockDelay: c.LockDelay.Milliseconds(), ToldWithin: c.ToldWithin.Milliseconds()}
	if c.Session != clientv3.NoLease {
		enc.Session = strconv.FormatInt(int64(c.Session), 16)
	}
	b, _ := json.Marshal(enc) // plain fields
	return string(b)
}

// DecodeClaim returns what the value of a claim says; nothing for a value of another form.
func DecodeClaim(value []byte) Claim {
	var enc encodedClaim
	if len(value) > maxValue || json.Unmarshal(value, &enc) != nil {
		return Claim{}
	}
	bounded := func(ms int64) time.Duration {
		return time.Duration(min(max(0, ms), maxDelay.Milliseconds())) * time.Millisecond
	}
	session, _ := strconv.ParseInt(enc.Session, 16, 64) // 0 for anything else
	return Claim{bounded(enc.LockDelay), bounded(enc.ToldWithin), clientv3.LeaseID(session)}
}

// WasMoved reports whether a claim was put again by a Detach or an Attach, so that its value may name another session
// than its key. The version of the key tells: 1 is the put of the entry, and 2, of a turn, its mark.
func WasMoved(q Keyspace, claim *mvccpb.KeyValue) bool {
	return claim.Version > 2 || claim.Version == 2 && !q.IsTurn(q.EntryOf(string(claim.Key)))
}
