package etcdfake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/etcdfake"
)

// soon is a context that ends after d.
func soon(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestRequestArrivesAfterItsCallerHasGivenUp(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		link.Plan(func(etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{Request: time.Hour} })
		if _, err := link.Client().Put(soon(t, time.Second), "k", "v"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v", err)
		}
		if len(srv.Keys("k")) != 0 {
			t.Error("the request has arrived early")
		}
		time.Sleep(time.Hour)
		if len(srv.Keys("k")) != 1 {
			t.Error("the request has not arrived")
		}
	})
}

func TestLostRequestsAndReplies(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		cli := link.Client()
		link.LoseReply("Put", 1, codes.Unavailable)
		if _, err := cli.Put(t.Context(), "done", ""); status.Code(err) != codes.Unavailable {
			t.Errorf("lost reply: %v", err)
		}
		link.LoseRequest("Put", 1)
		if _, err := cli.Put(t.Context(), "not done", ""); status.Code(err) != codes.Unavailable {
			t.Errorf("lost request: %v", err)
		}
		link.LoseReply("Put", 1, codes.DeadlineExceeded)
		start := time.Now()
		_, err := cli.Put(soon(t, time.Minute), "done silently", "")
		if err != context.DeadlineExceeded || time.Since(start) != time.Minute {
			t.Errorf("silent loss: %v after %v", err, time.Since(start))
		}
		link.LoseReply("Put", 1, codes.Canceled)
		before := link.Count()["Put"]
		_, err = cli.Put(t.Context(), "twice", "")
		if err != nil || link.Count()["Put"]-before != 2 || srv.Keys("twice")[0].Version != 2 {
			t.Errorf("clientv3 repeats a write after Canceled: %v, %v", err, srv.Keys("twice"))
		}
		link.LoseReply("Range", 3, codes.Unavailable)
		if _, err := cli.Get(t.Context(), "done"); err != nil || link.Count()["Range"] != 4 {
			t.Errorf("clientv3 repeats a read: %v, %v", err, link.Count())
		}
		if len(srv.Keys("done")) != 2 || len(srv.Keys("not done")) != 0 {
			t.Errorf("the store has %v", srv.Keys(""))
		}
	})
}

func TestCutFailsCallsInFlightAndDelaysNewOnes(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		cli := link.Client()
		link.Delay(time.Second)
		time.AfterFunc(500*time.Millisecond, link.Cut)
		start := time.Now()
		_, err := cli.Put(t.Context(), "a", "")
		if status.Code(err) != codes.Unavailable || time.Since(start) != 500*time.Millisecond {
			t.Errorf("call in flight: %v after %v", err, time.Since(start))
		}
		if _, err := cli.Put(soon(t, time.Second), "b", ""); err != context.DeadlineExceeded {
			t.Errorf("while cut: %v", err)
		}
		time.AfterFunc(time.Minute, link.Heal)
		if _, err := cli.Put(t.Context(), "c", ""); err != nil || time.Since(start) < time.Minute {
			t.Errorf("call that waits for the connection: %v after %v", err, time.Since(start))
		}
		if kvs := srv.Keys(""); len(kvs) != 1 || string(kvs[0].Key) != "c" {
			t.Errorf("the store has %v", kvs)
		}
	})
}

func TestBlackHoleDeliversAfterHeal(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		cli := link.Client()
		link.BlackHole()
		if _, err := cli.Put(soon(t, time.Second), "a", ""); err != context.DeadlineExceeded || len(srv.Keys("")) != 0 {
			t.Errorf("black hole: %v, %v", err, srv.Keys(""))
		}
		link.Heal()
		if len(srv.Keys("a")) != 1 {
			t.Error("the held request has not arrived")
		}
		link.BlackHoleReplies()
		_, err := cli.Put(soon(t, time.Second), "b", "")
		if err != context.DeadlineExceeded || len(srv.Keys("b")) != 1 {
			t.Errorf("no replies: %v, %v", err, srv.Keys("b"))
		}
	})
}
