package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

func TestResizeFromAnotherLimitIsRefused(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := holdtest.Start(t, srv)
		q := p.Semaphore(3)
		for _, to := range []int{0, -1, layout.MaxPermits + 1} {
			if err := q.Resize(ctx, to); !errors.As(err, new(*holdfast.ArgumentError)) {
				t.Errorf("to %d: %v", to, err)
			}
		}
		if n, err := q.Limit(ctx); n != 0 || err != nil {
			t.Errorf("limit %d, %v before the first acquisition", n, err)
		}
		p.PlanOne("enqueue", holdtest.LostReply) // sent again, and carried out twice
		if err := q.Resize(ctx, 5); err != nil {
			t.Fatal(err)
		}
		if n, err := q.Limit(ctx); n != 5 || err != nil {
			t.Errorf("limit %d, %v", n, err)
		}
		var limit *holdfast.LimitError
		if err := q.Resize(ctx, 4); !errors.As(err, &limit) || limit.Limit != 5 || limit.Named != 3 {
			t.Error(err)
		}
		if err := q.Resize(ctx, 5); err != nil {
			t.Errorf("to what it is: %v", err)
		}
	})
}

// The program names the limit 2, and nothing is put but that.
func TestResizeChangesTheLimitThatTheProgramNames(t *testing.T) {
	for name, c := range map[string]struct {
		stands, meanwhile string // what is put as the limit, and while Resize runs; "-": it is deleted
		to                int
		want              string
		err               string
	}{
		"raised":                      {stands: "2", to: 3, want: "3"},
		"it is that already":          {stands: "3", to: 3, want: "3"},
		"there was none":              {to: 3, want: "3"},
		"there was none, and it is 2": {to: 2, want: "2"},
		"another process raises it":   {stands: "2", meanwhile: "3", to: 3, want: "3"},
		"it names another":            {stands: "4", to: 3, want: "4", err: "4"},
		"it is deleted meanwhile":     {stands: "2", meanwhile: "-", to: 3, want: "3"},
		"it cannot be a limit":        {stands: "many", to: 3, want: "many", err: `is "many": put a number`},
		"it is of format 1":           {stands: "2 2", to: 3, want: "2 2", err: `is "2 2": put a number`},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				if c.stands != "" {
					srv.Put(kit.LimitX, c.stands)
				}
				p.KV.Refuse(func(ops []clientv3.Op) error {
					switch {
					case !ops[0].IsPut():
					case c.meanwhile == "-":
						srv.Delete(kit.LimitX)
					case c.meanwhile != "":
						srv.Put(kit.LimitX, c.meanwhile)
					}
					return nil
				})
				err := p.Semaphore(2).Resize(t.Context(), c.to)
				if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
				got := ""
				for _, kv := range srv.Keys(kit.LimitX) {
					got = string(kv.Value)
				}
				if got != c.want {
					t.Errorf("the limit is %q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestLimitThatIsDeletedWhileOneWaitsIsPutAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Hour)
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Permits(1, 1))
		waiter := holdtest.AcquireLater(ctx, holdtest.Start(t, srv).Permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		srv.Delete(kit.LimitX)
		holdtest.MustRelease(t, h)
		holdtest.MustRelease(t, heldNow(t, waiter))
		if kvs := srv.Keys(kit.LimitX); len(kvs) != 1 || string(kvs[0].Value) != "1" {
			t.Errorf("%v", kvs)
		}
	})
}

func TestLimitThatIsNoNumberIsAnError(t *testing.T) {
	for _, text := range []string{"many", "01"} {
		etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
			srv.Put(kit.LimitX, text)
			_, err := hold.Acquire(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(1, 1), hold.Request{})
			if err == nil || !strings.Contains(err.Error(), kit.LimitX) {
				t.Errorf("%q: %v", text, err)
			}
			kit.NothingStands(t, srv)
		})
	}
}

func TestAnotherLimitThanInEtcdIsAnError(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		holdtest.MustRelease(t, holdtest.MustAcquire(t, p.Permits(3, 1)))
		for name, acquire := range map[string]func(context.Context, queue.Request) ([]*queue.Grant, error){
			"Acquire": queue.Set{p.Permits(4, 1)}.Acquire, "TryAcquire": queue.Set{p.Permits(4, 1)}.TryAcquire,
		} {
			_, err := acquire(kit.Within(t, time.Minute), queue.Request{})
			var limit *holdfast.LimitError
			if !errors.As(err, &limit) || limit.Limit != 3 || limit.Named != 4 || limit.Weight != 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
		kit.NothingStands(t, srv)
	})
}

// The put of both is refused, since there is no limit yet. Before one reads why, the other has put the limit.
func TestLimitThatAnotherProcessPutsMeanwhileCostsNoDelay(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		one, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		one.PlanOne("read", etcdfake.Fate{Request: 10 * kit.OneWay})
		a := holdtest.AcquireLater(kit.Within(t, time.Hour), one.Permits(2, 1))
		b := holdtest.MustAcquire(t, other.Permits(2, 1))
		holdtest.MustRelease(t, heldNow(t, a))
		holdtest.MustRelease(t, b)
		kit.NothingStands(t, srv)
	})
}

func TestBadPermitsAreRefusedBeforeAnyRequest(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		time.Sleep(20 * kit.OneWay) // it has set the watch of its session key
		p.Plan(nil)
		for _, c := range []struct{ limit, weight int }{
			{0, 1}, {-1, 1}, {layout.MaxPermits + 1, 1}, {3, 0}, {3, -1}, {3, 4},
		} {
			_, err := hold.Acquire(t.Context(), p.Permits(c.limit, c.weight), hold.Request{})
			argument, limit := (*holdfast.ArgumentError)(nil), (*holdfast.LimitError)(nil)
			if !errors.As(err, &argument) && !errors.As(err, &limit) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		_, err := hold.Acquire(t.Context(), queue.NewSemaphore(p.Host, "a//b", 1).Permits(1), hold.Request{})
		if name := (*holdfast.NameError)(nil); !errors.As(err, &name) || name.Kind != "semaphore" {
			t.Error(err)
		}
		if n := p.Counts(); len(n) != 0 {
			t.Errorf("sent %v", n)
		}
	})
}

// The one that has read that there is no limit comes too late with its own. What the other has put stands, and it is
// told.
func TestLimitThatAnotherProcessPutsMeanwhileIsNotReplaced(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		one, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
		one.Plan(func(kind string, n int) (f etcdfake.Fate) {
			if kind == "enqueue" && n == 2 { // the first was refused, because there is no limit; this one puts it
				f.Request = 10 * kit.OneWay
			}
			return f
		})
		late := holdtest.AcquireLater(kit.Within(t, time.Minute), one.Permits(2, 1))
		time.Sleep(5 * kit.OneWay)
		if one.Counts()["enqueue"] != 2 {
			t.Fatalf("sent %v: this tests nothing", one.Counts())
		}
		h := holdtest.MustAcquire(t, other.Permits(3, 1))
		var limit *holdfast.LimitError
		if r := <-late; !errors.As(r.Err, &limit) || limit.Limit != 3 || limit.Named != 2 {
			t.Errorf("Acquire with another limit: %v", r.Err)
		}
		if kv := srv.Keys(kit.LimitX)[0]; string(kv.Value) != "3" {
			t.Errorf("the limit is %s", kv.Value)
		}
		holdtest.MustRelease(t, h)
	})
}

// Between the read of the limit and its put, another client changes it. The caller is told, and does nothing.
func TestResizeThatAnotherOneOvertakesIsRefused(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		kit.SetLimit(t, srv, 3)
		p.PlanOne("enqueue", etcdfake.Fate{Request: 20 * kit.OneWay})
		time.AfterFunc(10*kit.OneWay, func() { srv.Put(kit.LimitX, layout.Limit{Permits: 4}.String()) })
		var limit *holdfast.LimitError
		if err := p.Semaphore(3).Resize(kit.Within(t, time.Minute), 5); !errors.As(err, &limit) || limit.Limit != 4 {
			t.Errorf("Resize: %v", err)
		}
		if kv := srv.Keys(kit.LimitX)[0]; string(kv.Value) != "4" {
			t.Errorf("the limit is %s", kv.Value)
		}
	})
}

// The first copy of a Resize arrives after the limit was changed once more.
func TestLateCopyOfAResizeDoesNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := kit.Within(t, time.Minute)
		p := holdtest.Start(t, srv)
		kit.SetLimit(t, srv, 3)
		p.PlanOne("enqueue", etcdfake.Fate{Request: 10 * time.Second})
		if err := p.Semaphore(3).Resize(ctx, 5); err != nil {
			t.Fatal(err)
		}
		if n := p.Counts()["enqueue"]; n < 2 {
			t.Fatalf("%d copies: this tests nothing", n)
		}
		if err := p.Semaphore(5).Resize(ctx, 4); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if n, err := p.Semaphore(4).Limit(ctx); n != 4 || err != nil {
			t.Errorf("limit %d, %v", n, err)
		}
	})
}

func TestLimitThatCannotBeReadOrPutIsAnError(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		sem := p.Semaphore(3)
		p.KV.Refuse(func(ops []clientv3.Op) error {
			if ops[0].IsPut() {
				return rpctypes.ErrPermissionDenied
			}
			return nil
		})
		if err := sem.Resize(t.Context(), 5); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("Resize without the right to write: %v", err)
		}
		_, err := hold.Acquire(t.Context(), p.Permits(3, 1), hold.Request{})
		if !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("Acquire without the right to put the limit: %v", err)
		}
		p.KV.Refuse(nil)
		holdtest.MustClose(t, p)
		if n, err := sem.Limit(t.Context()); n != 0 || !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Limit of a closed session: %d, %v", n, err)
		}
	})
}

// The limit is made unreadable by hand while one waits.
func TestLimitThatBecomesUnreadableIsTheErrorOfAWaiter(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		h := holdtest.MustAcquire(t, p.Permits(1, 1))
		waiter := holdtest.AcquireLater(kit.Within(t, time.Minute), holdtest.Start(t, srv).Permits(1, 1))
		kit.Queued(t, srv, permitsX, 2)
		srv.Put(kit.LimitX, "1 1") // as clients of format 1 write it
		if r := <-waiter; r.Err == nil || !strings.Contains(r.Err.Error(), kit.LimitX) {
			t.Error(r.Err)
		}
		holdtest.MustRelease(t, h)
		kit.NothingStands(t, srv)
	})
}
