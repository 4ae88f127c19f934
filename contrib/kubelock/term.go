package kubelock

import (
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// Term is one leadership of a Lock. It is a fencing.Holder, and safe for concurrent use.
type Term struct {
	lock  *Lock
	token holdfast.Token

	mu    sync.Mutex    // protects the fields below
	sent  time.Duration // when the last confirmed renewal was sent, by the lock's clock
	until time.Duration // it is trusted until then
	ended error         // final
}

var _ fencing.Holder = (*Term)(nil)

// String names the lock, with the term's token.
func (t *Term) String() string {
	if t == nil || t.lock == nil {
		return "no term"
	}
	return fmt.Sprintf("lock %q, token %d", t.lock.name, t.token)
}

// Name returns the name of the lock.
func (t *Term) Name() string { return t.lock.name }

// Token returns the fencing token: larger than that of each earlier term of this name. That of a nil Term is 0, which
// nothing that compares tokens accepts.
func (t *Term) Token() holdfast.Token {
	if t == nil {
		return 0
	}
	return t.token
}

// Client returns the etcd client of the lock.
func (t *Term) Client() *clientv3.Client { return t.lock.cli }

// Holding returns a comparison for a Txn, which is true until the term is released or another one begins.
func (t *Term) Holding() []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(t.lock.holder), "=", t.token.Revision())}
}

// Check reports whether the term is held now, without an RPC: nil, a *holdfast.LostError, or holdfast.ErrReleased. It
// is trusted for nine tenths of client-go's LeaseDuration after the last confirmed renewal was sent; other candidates
// wait for the whole of it. It reads session.SystemClock, so it is right after a pause. Time passes between a Check and
// what follows it: only a fence closes that gap. That of a nil Term is holdfast.ErrNoToken.
func (t *Term) Check() error {
	if t == nil {
		return holdfast.ErrNoToken
	}
	now := t.lock.clock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil && t.until <= now {
		t.ended = t.lost(holdfast.CauseExpired, now)
	}
	return t.ended
}

// renewed notes a confirmed renewal. It does not revive a term whose end was reported.
func (t *Term) renewed(sent time.Duration, ler resourcelock.LeaderElectionRecord) {
	until := sent + time.Duration(ler.LeaseDurationSeconds)*time.Second*9/10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent, t.until = sent, until
}

// release ends the term, unless its end was reported before.
func (t *Term) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = holdfast.ErrReleased
	}
}

// lose ends the term, unless its end was reported before.
func (t *Term) lose(cause holdfast.Cause) {
	now := t.lock.clock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = t.lost(cause, now)
	}
}

// lost must be called with t.mu held.
func (t *Term) lost(cause holdfast.Cause, now time.Duration) error {
	return &holdfast.LostError{
		Kind: holdfast.KindElection, Name: t.lock.name, Token: t.token, Cause: cause, Since: now - t.sent,
	}
}
