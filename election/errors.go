package election

import (
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/view"
)

var (
	// ErrNoLeader is returned by Leader when no candidate leads.
	ErrNoLeader = errors.New("the election has no leader")

	// ErrNotDrained: a function has not returned within Options.DrainTimeout of the end of its context. It is
	// still running, without its term; only fencing stops its writes.
	ErrNotDrained = errors.New("the function has not returned after its term ended")
)

// CheckName returns nil, or a *holdfast.NameError if name cannot name an election. A name is one or more non-empty
// segments joined by "/", none starting with "@", at most 512 bytes. Campaign checks too, before it sends anything.
func CheckName(name string) error { return names.Check(holdfast.KindElection, name) }

// CampaignError says why a campaign did not lead to a term. Nothing is held, and its entry is gone. Only if etcd did
// not answer may the entry still appear, and block those behind it, until the session or the end of the lease removes
// it.
type CampaignError struct {
	Name   string
	Lease  clientv3.LeaseID // the session's latest; 0 without a session
	State  holdfast.State   // the session's when the call returned; 0 without a session
	Waited time.Duration

	// Place says who leads and how many are ahead, with ctx's error; see
	// locker.AcquireError. It is zero if nothing was known, or if nothing was ahead.
	Place view.Place

	// Err is one of:
	//   - the context's error, joined with that of the last attempt;
	//   - holdfast.ErrReentrant or holdfast.ErrClosed;
	//   - ErrNotDrained, joined with the context's error: a function of an earlier term was still running (Run and
	//     RunWhileLeader only);
	//   - a *holdfast.LostError (only under session.Options.StayLost);
	//   - a *holdfast.NameError or *holdfast.ArgumentError: nothing was sent;
	//   - etcd's error, where a retry cannot help.
	Err error
}

func (e *CampaignError) Error() string {
	if e.State == 0 {
		return fmt.Sprintf("election %s not won: %v", names.Quote(e.Name), e.Err)
	}
	text := fmt.Sprintf("election %s not won after %s (lease %x, session %s): %v",
		names.Quote(e.Name), e.Waited.Round(time.Millisecond), int64(e.Lease), e.State, e.Err)
	if e.Place.Known() {
		text += "; " + e.Place.String()
	}
	return text
}

func (e *CampaignError) Unwrap() error { return e.Err }
