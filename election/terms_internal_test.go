package election

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/session"
)

// A session may lead thousands of times. It keeps the latest few terms, for observers that are late, and no state of a
// term that has ended: by Resign, by the return of its function, or by a loss while that ran.
func TestSessionForgetsItsTermsWhenTheyHaveEnded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess, err := session.New(t.Context(), srv.Client(t), session.Options{
			Clock: session.MonotonicClock(), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sess.Close(context.Background()) }()
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		var last *Term
		for i := range 16 {
			e := New(sess, fmt.Sprint("job-", i%3)).With(Options{Value: ""})
			term, err := e.Campaign(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if states, _ := termsOf(e).list(); len(states) != 1 {
				t.Errorf("%d terms while it leads", len(states))
			}
			if err := term.Resign(ctx); err != nil {
				t.Fatal(err)
			}
			for _, lose := range []bool{false, true} {
				_ = e.RunWhileLeader(ctx, func(ctx context.Context, t *Term) error {
					if last = t; lose {
						srv.Delete(t.Key())
						<-ctx.Done()
					}
					return nil
				})
			}
		}
		synctest.Wait()
		all := termsOf(last.election).all
		if len(all.states) != 0 {
			t.Errorf("states of %d elections are kept", len(all.states))
		}
	})
}
