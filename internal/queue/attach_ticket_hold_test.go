package queue_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// Of two calls of one session with one ticket one succeeds, although the other finds the entry on its own lease.
func TestOneSessionAttachesATicketOnce(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, _, _ := detached(t, srv)
		p := holdtest.Start(t, srv)
		type result struct {
			h   *hold.Hold
			err error
		}
		results := make(chan result, 2)
		for range 2 {
			go func() { // ends soon: the test receives from results
				h, err := p.Attach(t.Context(), ticket, hold.Request{})
				results <- result{h, err}
			}()
		}
		a, b := <-results, <-results
		if a.h == nil {
			a, b = b, a
		}
		if a.err != nil || b.h != nil {
			t.Fatalf("%v and %v", a, b)
		}
		wants(t, b.err, holdfast.TicketUsed)
		holdtest.MustRelease(t, a.h)
		_, err := p.Attach(t.Context(), ticket, hold.Request{})
		wants(t, err, holdfast.TicketUsed)
		kit.NothingStands(t, srv)
	})
}

// A ticket is good for the Detach that it is of, and no other.
func TestTicketOfAnEarlierDetachIsRefused(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		first, _, p := detached(t, srv)
		second := holdtest.MustDetach(t, p.MustAttach(t, first, hold.Request{}), time.Hour)
		for _, q := range []*holdtest.Process{p, holdtest.Start(t, srv)} {
			_, err := q.Attach(t.Context(), first, hold.Request{})
			wants(t, err, holdfast.TicketUsed)
		}
		holdtest.MustRelease(t, p.MustAttach(t, second, hold.Request{}))
	})
}

// What a process hears depends on what has become of the entry.
func TestTicketThatIsGoodNoMore(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(t *testing.T, srv *etcdfake.Server, ticket layout.Ticket)
		want    holdfast.TicketEnd
	}{
		"the lease is over": {func(_ *testing.T, _ *etcdfake.Server, _ layout.Ticket) {
			time.Sleep(time.Hour + time.Minute)
		}, holdfast.TicketExpired},
		"the lease was revoked": {func(t *testing.T, srv *etcdfake.Server, ticket layout.Ticket) {
			srv.Revoke(ticket.Lease)
		}, holdfast.TicketKicked},
		"the entry was deleted by hand": {func(t *testing.T, srv *etcdfake.Server, ticket layout.Ticket) {
			srv.Delete(ticket.Key)
		}, holdfast.TicketUsed},
		"the entry was deleted by hand, in the last second": {func(t *testing.T, srv *etcdfake.Server, ticket layout.Ticket) {
			time.Sleep(time.Until(ticket.Until) - time.Second/2)
			srv.Delete(ticket.Key)
		}, holdfast.TicketUsed},
		"another session has it, and the lease is over": {func(t *testing.T, srv *etcdfake.Server, ticket layout.Ticket) {
			holdtest.Start(t, srv).MustAttach(t, ticket, hold.Request{})
			time.Sleep(time.Hour + time.Minute)
		}, holdfast.TicketUsed},
		"the entry was written to by hand": {func(t *testing.T, srv *etcdfake.Server, ticket layout.Ticket) {
			kv := srv.Keys(ticket.Key)[0]
			holdtest.Notify(t, srv, kv, layout.Notice{By: "me", Reason: "to test"})
		}, holdfast.TicketUsed},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				ticket, _, _ := detached(t, srv)
				p := holdtest.Start(t, srv)
				c.happens(t, srv, ticket)
				_, err := p.Attach(t.Context(), ticket, hold.Request{})
				wants(t, err, c.want)
				if strings.Contains(err.Error(), "free") { // the ticket may have been used, and others may hold since
					t.Errorf("it says that the lock is free: %v", err)
				}
			})
		})
	}
}

// A ticket may come from anywhere.
func TestTicketOfAnotherNamespaceIsRefusedBeforeAnythingIsSent(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ticket, _, p := detached(t, srv)
		other := ticket
		other.Namespace = "other"
		other.Key = "other" + ticket.Key[len("holdfast"):]
		p.Plan(nil)
		for _, bad := range []layout.Ticket{{}, other} {
			var argument *holdfast.ArgumentError
			if _, err := p.Attach(t.Context(), bad, hold.Request{}); !errors.As(err, &argument) ||
				argument.Argument != "ticket" {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		if p.Counts()["attach"] != 0 {
			t.Errorf("requests: %v", p.Counts())
		}
	})
}
