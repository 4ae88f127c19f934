//go:build unix

package mixedfleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/tests/compat/mixedfleet/worker"
)

// Most leases must outlive the test, on a busy machine too. Those of holders that are killed or stopped expire: what
// such a holder does before that takes milliseconds.
const (
	lasting  = time.Minute
	expiring = 4 * time.Second
)

// A generation is the last release or the present code.
type generation string

const (
	old     generation = "last release"
	present generation = "present"
)

// directions are which generation is first, and which follows.
var directions = [][2]generation{{old, present}, {present, old}}

// process is a worker of one generation.
type process struct {
	*child.Child[worker.Event]
	t *testing.T
}

func start(t *testing.T, g generation, srv *etcdtest.Server) *process {
	t.Helper()
	return startWith(t, g, srv, lasting)
}

// startWith starts a worker whose lease has this TTL.
func startWith(t *testing.T, g generation, srv *etcdtest.Server, ttl time.Duration) *process {
	t.Helper()
	job := worker.Job{Endpoints: srv.Endpoints(), TTL: ttl}
	var c *child.Child[worker.Event]
	var err error
	if g == old {
		c, err = child.StartProgram[worker.Event](oldWorker(t), string(g), job)
	} else {
		c, err = child.Start[worker.Event](string(g), job)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unexpected := errors.New("a worker has printed to stderr")
		if err := child.KillAll(unexpected, c); err != unexpected {
			t.Error(err)
		}
	})
	p := &process{c, t}
	p.await(worker.Open)
	return p
}

// tell gives an order. The reply is for await.
func (p *process) tell(o worker.Order) {
	p.t.Helper()
	message, err := json.Marshal(o)
	if err == nil {
		err = p.Tell(string(message))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// A reply is the reply to an order, and when it came.
type reply struct {
	worker.Event
	at  time.Time
	err error // there is no reply
}

// later waits for the reply to an order in the background.
func (p *process) later(what string) <-chan reply {
	c := make(chan reply, 1)
	go func() { // ends with its timeout, and is joined by the receiver
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		ev, err := p.Await(ctx, what)
		c <- reply{ev, time.Now(), err}
	}()
	return c
}

// reply waits for the reply to an order.
func (p *process) reply(what string) worker.Event {
	p.t.Helper()
	r := <-p.later(what)
	if r.err != nil {
		p.t.Fatal(r.err)
	}
	return r.Event
}

// await waits for the reply to an order that must succeed.
func (p *process) await(what string) worker.Event {
	p.t.Helper()
	ev := p.reply(what)
	if ev.Err != "" {
		p.t.Fatalf("%s: %s: %s", p.Name, what, ev.Err)
	}
	return ev
}

// do gives an order that must succeed, and waits for the reply.
func (p *process) do(o worker.Order) worker.Event {
	p.t.Helper()
	p.tell(o)
	return p.await(o.What)
}

func entries(kind, name string) string { return "holdfast/" + kind + "/" + name + "/@/" }

// inBothDirections runs a test with either generation first.
func inBothDirections(t *testing.T, f func(t *testing.T, srv *etcdtest.Server, first, second generation)) {
	t.Helper()
	for _, d := range directions {
		t.Run(fmt.Sprintf("%s first", d[0]), func(t *testing.T) {
			t.Parallel()
			f(t, etcdtest.Start(t), d[0], d[1])
		})
	}
}

// All queue in one line, alternating. Each is granted the lock after the one ahead of it has released it.
func TestGenerationsQueueInOneOrder(t *testing.T) {
	t.Parallel()
	for kind, o := range map[string]struct{ acquire, release string }{
		"lock":     {worker.Lock, worker.Unlock},
		"election": {worker.Campaign, worker.Resign},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			inBothDirections(t, func(t *testing.T, srv *etcdtest.Server, first, second generation) {
				var queue []*process
				for i := range 4 {
					p := start(t, []generation{first, second}[i%2], srv)
					p.tell(worker.Order{What: o.acquire, Name: "x", Value: fmt.Sprint(i)})
					srv.WaitForKeys(t, entries(kind, "x"), i+1)
					queue = append(queue, p)
				}
				var last worker.Event
				for i, p := range queue {
					ev := p.await(o.acquire)
					if ev.Token <= last.Token {
						t.Errorf("%s, %d in the queue: token %v after %v", p.Name, i, ev.Token, last.Token)
					}
					if n := len(srv.Keys(t, entries(kind, "x"))); n != len(queue)-i {
						t.Errorf("%s acquired with %d entries in the queue, want %d", p.Name, n, len(queue)-i)
					}
					last = ev
					p.do(worker.Order{What: o.release})
				}
				srv.WaitForKeys(t, entries(kind, "x"), 0)
			})
		})
	}
}

func TestTryLockOfTheOtherGeneration(t *testing.T) {
	t.Parallel()
	inBothDirections(t, func(t *testing.T, srv *etcdtest.Server, first, second generation) {
		holder, other := start(t, first, srv), start(t, second, srv)
		holder.do(worker.Order{What: worker.Lock, Name: "x"})
		other.tell(worker.Order{What: worker.TryLock, Name: "x"})
		if ev := other.reply(worker.TryLock); ev.Err == "" {
			t.Error("both hold the lock")
		}
		holder.do(worker.Order{What: worker.Unlock})
		other.do(worker.Order{What: worker.TryLock, Name: "x"})
	})
}

// An update is lost unless each increment excludes all others.
func TestGenerationsExcludeEachOther(t *testing.T) {
	t.Parallel()
	const times = 40
	srv := etcdtest.Start(t)
	var all []*process
	for _, g := range []generation{old, present, old, present} {
		p := start(t, g, srv)
		p.tell(worker.Order{What: worker.Count, Name: "x", Key: "count", Times: times})
		all = append(all, p)
	}
	for _, p := range all {
		p.await(worker.Count)
	}
	if kvs := srv.Keys(t, "count"); len(kvs) != 1 || string(kvs[0].Value) != fmt.Sprint(len(all)*times) {
		t.Errorf("count is %v, want %d", kvs, len(all)*times)
	}
	if kvs := srv.Keys(t, entries("lock", "x")); len(kvs) != 0 {
		t.Errorf("left behind: %v", kvs)
	}
}

func TestKilledHolderIsFollowedByTheOtherGeneration(t *testing.T) {
	t.Parallel()
	inBothDirections(t, func(t *testing.T, srv *etcdtest.Server, first, second generation) {
		holder, waiter := startWith(t, first, srv, expiring), start(t, second, srv)
		token := holder.do(worker.Order{What: worker.Lock, Name: "x"}).Token
		waiter.tell(worker.Order{What: worker.Lock, Name: "x"})
		srv.WaitForKeys(t, entries("lock", "x"), 2)
		holder.Kill()
		if ev := waiter.await(worker.Lock); ev.Token <= token {
			t.Errorf("token %v after %v", ev.Token, token)
		}
	})
}

// A waiter tells a revoked lease from a release by the session key of the holder, and gives it time to be told.
func TestHolderIsToldOfARevocationBeforeTheOtherGenerationHolds(t *testing.T) {
	t.Parallel()
	inBothDirections(t, func(t *testing.T, srv *etcdtest.Server, first, second generation) {
		holder, waiter := start(t, first, srv), start(t, second, srv)
		holder.do(worker.Order{What: worker.Lock, Name: "x"})
		waiter.tell(worker.Order{What: worker.Lock, Name: "x"})
		srv.WaitForKeys(t, entries("lock", "x"), 2)
		holder.tell(worker.Order{What: worker.Lost})
		told, acquired := holder.later(worker.Lost), waiter.later(worker.Lock)
		srv.RevokeHolder(t, entries("lock", "x"))
		lost, held := <-told, <-acquired
		if lost.err != nil || lost.Err == "" || held.err != nil || held.Err != "" {
			t.Fatalf("the holder: %+v; the waiter: %+v", lost, held)
		}
		if held.at.Before(lost.at) {
			t.Errorf("the waiter held %v before the holder was told", lost.at.Sub(held.at))
		}
	})
}

// A paused holder is followed by the other generation, whose token refuses its late write.
func TestLateWriteOfAPausedHolderIsRefused(t *testing.T) {
	t.Parallel()
	inBothDirections(t, func(t *testing.T, srv *etcdtest.Server, first, second generation) {
		holder, next := startWith(t, first, srv, expiring), start(t, second, srv)
		write := func(p *process) worker.Order { return worker.Order{What: worker.Write, Key: "data", Value: p.Name} }
		holder.do(worker.Order{What: worker.Lock, Name: "x"})
		holder.do(write(holder))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := holder.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		next.do(worker.Order{What: worker.Lock, Name: "x"})
		next.do(write(next))
		holder.tell(write(holder))
		if err := holder.Continue(); err != nil {
			t.Fatal(err)
		}
		if ev := holder.reply(worker.Write); !ev.Stale {
			t.Errorf("the late write: %q", ev.Err)
		}
		if kvs := srv.Keys(t, "data"); len(kvs) != 1 || string(kvs[0].Value) != next.Name {
			t.Errorf("data is %v", kvs)
		}
	})
}

func TestGenerationsSeeEachOthersLeader(t *testing.T) {
	t.Parallel()
	inBothDirections(t, func(t *testing.T, srv *etcdtest.Server, first, second generation) {
		leader, other := start(t, first, srv), start(t, second, srv)
		leader.do(worker.Order{What: worker.Campaign, Name: "x", Value: "the leader's value"})
		if ev := other.do(worker.Order{What: worker.Leader, Name: "x"}); ev.Value != "the leader's value" {
			t.Errorf("%s sees the leader %q", other.Name, ev.Value)
		}
	})
}
