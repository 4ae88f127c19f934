package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

func TestCallWithoutALeaseSaysSo(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		p.Link.BlackHole()
		time.Sleep(kit.TTL)
		_, err := hold.Acquire(kit.Within(t, time.Second), p.Queue("x"), hold.Request{})
		if err == nil || !strings.Contains(err.Error(), "; the session had no lease") {
			t.Errorf("%v", err)
		}
		p.Heal()
		p.KV.Refuse(nil)
		time.Sleep(kit.TTL)
		if h := holdtest.MustAcquire(t, p.Queue("x")); h != nil {
			holdtest.MustRelease(t, h)
		}
	})
}

// The context of a call and its session may end together: then the context has ended it.
func TestCallThatIsCanceledBeforeItsPutIsAnsweredHasNoPlace(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		p.PlanAll("enqueue", holdtest.Silence)
		_, err := hold.Acquire(kit.Within(t, time.Second), p.Queue("x"), hold.Request{})
		place, bare := queue.Without(err)
		if place.Known() || !errors.Is(bare, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "etcd has not answered the request to queue") {
			t.Errorf("%+v, %v", place, err)
		}
		p.Plan(nil)
	})
}

// The first request has failed when the caller's time is over. Its error is told, not only that the time is over.
func TestErrorOfACallThatEndsAfterAFailureHasThatFailure(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		p.PlanAll("enqueue", etcdfake.Fate{LoseRequest: true})
		_, err := hold.Acquire(kit.Within(t, kit.OneWay), p.Queue("x"), hold.Request{})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "last error: ") {
			t.Errorf("Acquire: %v", err)
		}
	})
}
