package holdtest

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// MustDetach detaches a hold.
func MustDetach(t *testing.T, h *hold.Hold, within time.Duration) layout.Ticket {
	t.Helper()
	ticket, err := h.Detach(kit.Within(t, time.Minute), within)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

// Attach goes on with the hold of a ticket.
func (p *Process) Attach(ctx context.Context, ticket layout.Ticket, r hold.Request) (*hold.Hold, error) {
	return hold.Attach(ctx, queue.OfTicket(p.Host, ticket), ticket, r)
}

// MustAttach goes on with the hold of a ticket, which is good.
func (p *Process) MustAttach(t *testing.T, ticket layout.Ticket, r hold.Request) *hold.Hold {
	t.Helper()
	h, err := p.Attach(kit.Within(t, time.Minute), ticket, r)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
