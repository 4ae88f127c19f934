package election

import (
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/queue"
)

var (
	// ErrNoLeader is Leader's answer when nobody leads.
	ErrNoLeader = errors.New("the election has no leader")

	// ErrFunctionRuns says that a term cannot be yielded because a function of
	// Run or RunWhileLeader works in it. Return from the function instead: Run
	// then resigns and queues again.
	ErrFunctionRuns = errors.New("a function of Run or RunWhileLeader works in this term; return from it to step down")

	// ErrNotDrained says that a term has ended and the function that ran in
	// it has not returned within Options.DrainTimeout. It still runs; only a
	// fence keeps it from writing.
	ErrNotDrained = errors.New("the function has not returned after its term ended")
)

// CheckName reports whether name can name an election: nil or a
// *holdfast.NameError. Names are non-empty segments joined by "/", none starting
// with "@", at most 512 bytes, taken byte for byte. Check constants and
// configuration at boot; Campaign says the same before it sends anything.
func CheckName(name string) error { return queue.CheckName("election", name) }

// CampaignError says why a campaign did not lead to a term. Nothing is held. As a
// rule nothing is left in etcd either. Only if etcd did not answer while the call
// gave up, an entry of the call may still stand or appear, and others wait behind
// it, until the session has removed it: within moments of etcd answering again,
// and at the latest when the lease ends.
type CampaignError struct {
	Name   string
	Lease  clientv3.LeaseID // the session's latest; 0 without a session
	State  holdfast.State   // the session's, at the end; 0 without a session
	Waited time.Duration
	// Err is the reason: the context's error together with what the last
	// attempt met, holdfast.ErrReentrant, holdfast.ErrClosed, ErrFunctionRuns (Yield), *holdfast.LostError
	// (under session.Options.StayLost), ErrNotDrained (joined with the
	// context's error: what kept RunWhileLeader from leading was a function of
	// an earlier term), *holdfast.NameError, *holdfast.ArgumentError, or what
	// etcd said.
	Err error
}

func (e *CampaignError) Error() string {
	if e.State == 0 {
		return fmt.Sprintf("election %s not won: %v", names.Quote(e.Name), e.Err)
	}
	return fmt.Sprintf("election %s not won after %s (lease %x, session %s): %v",
		names.Quote(e.Name), e.Waited.Round(time.Millisecond), int64(e.Lease), e.State, e.Err)
}

func (e *CampaignError) Unwrap() error { return e.Err }
