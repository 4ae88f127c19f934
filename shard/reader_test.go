package shard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/shard"
)

// agree checks that a reader names the owners.
func (f *fleet) agree(what string, got shard.Owners) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(got.Owners) != f.n {
		f.t.Errorf("%s: %d shards", what, len(got.Owners))
	}
	for index := range f.n {
		o, want := got.Owner(index), f.owner[index]
		if o.Member != want || want != "" && (o.Value != "http://"+want || o.Revision != f.last[index].Revision()) ||
			want == "" && o != (shard.Owner{}) {
			f.t.Errorf("%s: the owner of shard %d is %q, the reader says %+v", what, index, want, o)
		}
	}
}

func TestReaderNamesTheOwners(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		r := shard.NewReader(srv.Client(t), "orders")
		if none, err := r.Owners(t.Context()); err != nil || len(none.Owners) != 0 || none.Owner(0) != (shard.Owner{}) {
			t.Errorf("before the first Run: %+v, %v", none, err)
		}
		o, err := r.Observer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		agree := func(what string) {
			t.Helper()
			synctest.Wait()
			asked, err := r.Owners(t.Context())
			if err != nil {
				t.Error(err)
			}
			f.agree(what+", asked", asked)
			if now := o.Current(); !now.Trusted || now.Age > 15*time.Second {
				t.Errorf("%s: %+v", what, now)
			}
			f.agree(what+", observed", o.Current().Owners)
		}
		a := f.start("a", time.Second)
		time.Sleep(settled)
		agree("one member")
		b := f.start("b", 0)
		time.Sleep(time.Second / 2)
		agree("while functions end")
		time.Sleep(settled)
		agree("two members")
		if one := o.Owner(3); one.Since.IsZero() || one.PID == 0 || one.Host == "" || one.Lease == 0 || one.Key == "" {
			t.Errorf("%+v", one)
		}
		srv.Put("holdfast/shard/orders/eu/3/@/x", "of other shards")
		srv.Put("holdfast/shard/orders/eu/@count", "100")
		srv.Put("holdfast/shard/orders/99/@/x", "of no shard")
		agree("with keys of others")
		b.stop()
		time.Sleep(settled)
		agree("one has left")
		a.stop()
		agree("the last member has left")
		if n := testing.AllocsPerRun(100, func() { o.Owner(1) }); n > 0 {
			t.Errorf("Owner allocates %v times", n)
		}
	})
}

// A member whose lease was revoked is told within the lock delay. Until then no owner is named:
//
//	rev 3   a claims the shard, and its entry has gone
//	rev 4   b queues, and waits
//	rev 5   b deletes a's claim, and owns
func TestReaderNamesNoOwnerBehindAClaimWhoseEntryHasGone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		r := shard.NewReader(srv.Client(t), "orders")
		owner := func() shard.Owner {
			now, err := r.Owners(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return now.Owner(0)
		}
		srv.Put(count, "1")
		srv.Put(entries+"0/@claim/a", "")
		if o := owner(); o != (shard.Owner{}) {
			t.Errorf("a claim alone: %+v", o)
		}
		srv.Put(entries+"0/@/b", `{"owner":"b"}`)
		srv.Put(entries+"0/@claim/b", "")
		for range 20 { // each in another order
			if o := owner(); o != (shard.Owner{}) {
				t.Fatalf("behind a's claim: %+v", o)
			}
		}
		srv.Delete(entries + "0/@claim/a")
		if o := owner(); o.Key != entries+"0/@/b" {
			t.Errorf("after a's claim: %+v", o)
		}
	})
}

// A name of shards may be "orders/3", whose keys are below those of "orders". Nor does a value that a program has not
// written cost a reader its memory.
func TestReaderLeavesOutKeysThatAreNotOfItsShards(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		r := shard.NewReader(srv.Client(t), "orders")
		srv.Put(count, "8")
		for _, key := range []string{"3/0/@/x", "3/@count", "8/@/x", "-1/@/x", "x/@/x", "2/@/x/y", "0/@other/x"} {
			srv.Put(entries+key, `{"owner":"x"}`)
		}
		srv.Put(entries+"0/@/a", "")
		for range 20 { // each in another order
			now, err := r.Owners(t.Context())
			if err != nil || len(now.Owners) != 8 || now.Owner(0).Key != entries+"0/@/a" {
				t.Fatalf("%+v, %v", now, err)
			}
			for index, o := range now.Owners {
				if index > 0 && o != (shard.Owner{}) || now.Owner(index) != o {
					t.Errorf("shard %d: %+v", index, o)
				}
			}
			if below, above := now.Owner(-1), now.Owner(8); below != (shard.Owner{}) || above != below {
				t.Errorf("shards that there are not: %+v, %+v", below, above)
			}
		}
		srv.Put(count, "1")
		for range 20 {
			if now, err := r.Owners(t.Context()); err != nil || len(now.Owners) != 1 || now.Owner(0).Key != entries+"0/@/a" {
				t.Fatalf("of one shard: %+v, %v", now, err)
			}
		}
		for number, want := range map[string]int{
			fmt.Sprint(shard.MaxCount): shard.MaxCount, fmt.Sprint(shard.MaxCount + 1): 0, "0": 0, "-1": 0, "many": 0,
		} {
			srv.Put(count, number)
			if now, err := r.Owners(t.Context()); err != nil || len(now.Owners) != want {
				t.Errorf("the number is %s: %d, %v", number, len(now.Owners), err)
			}
		}
	})
}

func TestReaderTellsARefusal(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		link.Plan(func(etcdfake.Call) etcdfake.Fate {
			return etcdfake.Fate{LoseRequest: true, Code: codes.PermissionDenied}
		})
		r := shard.NewReader(link.Client(), "orders")
		_, listed := r.Owners(t.Context())
		_, observed := r.Observer(t.Context())
		_, routed := r.OwnerOf(t.Context(), "x")
		for _, err := range []error{listed, observed, routed} {
			if etcderr.Classify(err) != etcderr.Unauthorized || !strings.Contains(err.Error(), `owners of shards "orders"`) {
				t.Errorf("%v", err)
			}
		}
	})
}

// The reader's own clock says how old it is.
func TestObserverGoesByItsClock(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var ahead atomic.Int64
		began := time.Now()
		clock := func() time.Duration { return time.Since(began) + time.Duration(ahead.Load()) }
		o, err := shard.NewReader(srv.Client(t), "orders").With(shard.ReaderOptions{Clock: clock}).Observer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ahead.Store(int64(24 * time.Hour)) // the machine has slept
		if s := o.Current(); s.Trusted || s.Age < 24*time.Hour {
			t.Errorf("trusted %v, age %v", s.Trusted, s.Age)
		}
		o.Close()
		if s := o.Current(); !errors.Is(s.Err, context.Canceled) {
			t.Errorf("closed: %v", s.Err)
		}
	})
}

func BenchmarkObserverOwner(b *testing.B) {
	srv := etcdfake.New(etcdfake.Options{})
	defer srv.Close()
	srv.Put(count, "64")
	srv.Put(entries+"7/@/x", `{"owner":"a"}`)
	o, err := shard.NewReader(srv.Client(b), "orders").Observer(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer o.Close()
	b.ReportAllocs()
	for b.Loop() {
		if owner := o.Owner(7); owner.Key == "" {
			b.Fatalf("%+v", o.Current())
		}
	}
}

func TestWatchTellsEachMove(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 1)
		ctx, cancel := context.WithCancel(t.Context())
		told := make(chan string, 100)
		go func() { // ends with ctx
			defer close(told)
			var last []shard.Owner
			for owners, err := range shard.NewReader(srv.Client(t), "orders").Watch(ctx) {
				if err != nil {
					told <- err.Error()
					return
				}
				if last != nil && slices.Equal(owners.Owners, last) {
					t.Errorf("told twice: %+v", last)
				}
				last = owners.Owners
				told <- owners.Owner(0).Member
			}
		}()
		var all []string
		until := func(want string) {
			t.Helper()
			for {
				select {
				case who := <-told:
					if all = append(all, who); who == want {
						return
					}
				case <-time.After(time.Minute):
					t.Errorf("told %q, want %q", all, want)
					return
				}
			}
		}
		until("")
		a := f.start("a", 0)
		until("a")
		a.stop()
		until("")
		f.start("b", 0)
		until("b")
		for range shard.NewReader(srv.Client(t), "orders").Watch(ctx) { // and no more after a break
			break
		}
		time.Sleep(time.Hour)
		cancel()
		until(`watch owners of shards "orders": context canceled`)
	})
}

func TestReaderRefusesBadInputBeforeAnyRequest(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		cli := link.Client()
		with := func(o shard.ReaderOptions) *shard.Reader { return shard.NewReader(cli, "x").With(o) }
		for name, r := range map[string]*shard.Reader{
			"the zero value":  {},
			"no client":       shard.NewReader(nil, "x"),
			"a zero client":   shard.NewReader(&clientv3.Client{}, "x"),
			"a bad name":      shard.NewReader(cli, "a//b"),
			"a bad namespace": with(shard.ReaderOptions{Namespace: "a/b"}),
			"a short MaxAge":  with(shard.ReaderOptions{MaxAge: time.Millisecond}),
		} {
			_, list := r.Owners(kit.Within(t, time.Minute))
			_, observe := r.Observer(kit.Within(t, time.Minute))
			var watched error
			for _, watched = range r.Watch(kit.Within(t, time.Minute)) {
			}
			for _, err := range []error{list, observe, watched} {
				var argument *holdfast.ArgumentError
				var bad *holdfast.NameError
				if !errors.As(err, &argument) && !errors.As(err, &bad) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if sent := link.Count(); len(sent) != 0 {
			t.Errorf("sent %v", sent)
		}
	})
}
