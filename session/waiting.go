package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/retry"
)

const (
	// toldAfter is how long a wait for a lease is silent, and toldEvery how often it is told of after that.
	toldAfter = time.Second
	toldEvery = time.Minute

	// askEndpoint bounds the question to one endpoint.
	askEndpoint = time.Second
)

// tellWait logs, from a second after now on, that no lease was granted, and what each endpoint says: New and a session
// that has lost its lease wait as long as etcd does not answer, and their error comes in the end, or never. The caller
// calls stop when the wait is over, which joins.
func (e *env) tellWait(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // joined by stop
		defer close(done)
		timer := time.NewTimer(toldAfter)
		defer timer.Stop()
		for waited := toldAfter; ; waited += toldEvery {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			if said := e.askEndpoints(ctx); ctx.Err() == nil {
				e.opts.Logger.Warn("holdfast: etcd has granted no lease yet; trying on", "waited", waited, "endpoints", said)
			}
			timer.Reset(toldEvery)
		}
	}()
	return func() { cancel(); <-done }
}

// askEndpoints returns what each endpoint says, or why there is no connection to it.
func (e *env) askEndpoints(ctx context.Context) string {
	const most = 9
	if e.client.ActiveConnection() == nil {
		return "not known" // of a client that was not made by clientv3.New
	}
	endpoints := e.client.Endpoints()
	all := make([]string, 0, most+1)
	for i, endpoint := range endpoints {
		if i == most {
			all = append(all, "…")
			break
		}
		shown := withoutUser(endpoint)
		user, _, _ := strings.Cut(endpoint, "@") // gRPC may repeat it
		said := strings.ReplaceAll(e.askEndpoint(ctx, endpoint), user+"@", "")
		all = append(all, names.Quote(shown)+": "+said)
	}
	return strings.Join(all, "; ")
}

func (e *env) askEndpoint(ctx context.Context, endpoint string) string {
	conn, err := e.client.Dial(endpoint)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, askEndpoint)
	defer cancel()
	leader, err := retry.Leader(ctx, conn)
	switch {
	case errors.Is(err, retry.ErrNotConnected):
		_, why, _ := strings.Cut(err.Error(), retry.ErrNotConnected.Error()+": ")
		return why
	case err != nil:
		return err.Error()
	case leader == 0:
		return "answers, and has no leader: a quorum of the members must run"
	default:
		return fmt.Sprintf("answers, and knows leader %x", leader)
	}
}
