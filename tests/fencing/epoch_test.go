package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
)

// journal is an auditor that remembers.
type journal struct {
	mu      sync.Mutex // protects records
	records []audit.Record
}

func (j *journal) Audit(_ context.Context, r audit.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = append(j.records, r)
}

func (j *journal) all() []audit.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]audit.Record(nil), j.records...)
}

func TestEpochIsOnlyEverRaised(t *testing.T) {
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	if epoch, err := fencing.Epoch(t.Context(), cli, ""); epoch != 0 || err != nil {
		t.Errorf("at first: %d, %v", epoch, err)
	}
	var j journal
	for _, step := range []struct{ atLeast, want int64 }{{1, 1}, {1, 1}, {5, 5}, {3, 5}, {1000, 1000}, {6, 1000}} {
		got, err := fencing.BumpEpoch(t.Context(), cli, "", step.atLeast, &j)
		if err != nil || got != step.want {
			t.Errorf("to at least %d: %d, %v; want %d", step.atLeast, got, err, step.want)
		}
		if got, err := fencing.Epoch(t.Context(), cli, ""); err != nil || got != step.want {
			t.Errorf("to at least %d: stands at %d, %v", step.atLeast, got, err)
		}
	}
	var values, details []string
	for _, ev := range srv.History(t, "holdfast/epoch") {
		values = append(values, string(ev.Kv.Value))
	}
	for _, r := range j.all() {
		details = append(details, r.Detail)
		if r.Event != audit.Bumped || r.Key != "holdfast/epoch" || r.Holder == "" || r.At.IsZero() || r.Err != nil {
			t.Errorf("record %+v", r)
		}
	}
	if got := strings.Join(values, " "); got != "1 5 1000" {
		t.Errorf("etcd saw %s", got)
	}
	if got := strings.Join(details, ", "); got != "epoch 0 → 1, epoch 1 → 5, epoch 5 → 1000" {
		t.Errorf("audited: %s", got)
	}
}

func TestEpochOutOfBoundsIsRefused(t *testing.T) {
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	var j journal
	for _, atLeast := range []int64{0, -1, fencing.MaxEpoch + 1, 1 << 48} {
		_, err := fencing.BumpEpoch(t.Context(), link.Client(), "", atLeast, &j)
		if !errors.As(err, new(*holdfast.ArgumentError)) {
			t.Errorf("%d: %v", atLeast, err)
		}
	}
	for _, ns := range []string{"a/b", "@a", strings.Repeat("n", 65)} {
		_, err := fencing.BumpEpoch(t.Context(), link.Client(), ns, 1, &j)
		if !errors.As(err, new(*holdfast.NameError)) {
			t.Errorf("namespace %q: %v", ns, err)
		}
	}
	if n := link.Count(); n.Total() != 0 || len(j.all()) != 0 {
		t.Errorf("sent %v, audited %v", n, j.all())
	}
}

func TestWhatIsNoEpochIsLeftAsItIs(t *testing.T) {
	srv := etcdtest.Start(t)
	cli := srv.Client(t)
	for _, value := range []string{"", "x", "-1", "32768", "1.5", "99999999999999999999"} {
		if _, err := cli.Put(t.Context(), "ns/epoch", value); err != nil {
			t.Fatal(err)
		}
		_, err := fencing.BumpEpoch(t.Context(), cli, "ns", 7, nil)
		if !errors.As(err, new(*fencing.EpochError)) {
			t.Errorf("over %q: %v", value, err)
		}
		if got := string(srv.Keys(t, "ns/epoch")[0].Value); got != value {
			t.Errorf("%q became %q", value, got)
		}
	}
}

func TestConcurrentBumpsEndAtTheHighest(t *testing.T) {
	srv := etcdtest.Start(t)
	var wg sync.WaitGroup
	for i := range 8 {
		cli := srv.Client(t)
		wg.Go(func() {
			if got, err := fencing.BumpEpoch(t.Context(), cli, "", int64(i+1), &journal{}); err != nil || got < int64(i+1) {
				t.Errorf("to at least %d: %d, %v", i+1, got, err)
			}
		})
	}
	wg.Wait()
	last := ""
	for _, ev := range srv.History(t, "holdfast/epoch") {
		if v := string(ev.Kv.Value); v <= last {
			t.Errorf("%s after %s", v, last)
		} else {
			last = v
		}
	}
	if last != "8" {
		t.Errorf("ends at %s", last)
	}
}

func TestBumpThatArrivesLateDoesNotLower(t *testing.T) {
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	held := link.Hold("Txn")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-held.Arrived(); cancel() }() // ends with Arrived, which the next line waits for
	var j journal
	if _, err := fencing.BumpEpoch(ctx, link.Client(), "", 3, &j); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if r := j.all(); len(r) != 1 || r[0].Err == nil {
		t.Errorf("a bump that may have happened is audited as %+v", r)
	}
	if _, err := fencing.BumpEpoch(t.Context(), srv.Client(t), "", 9, &j); err != nil {
		t.Fatal(err)
	}
	held.Deliver()
	<-held.Delivered()
	if got := string(srv.Keys(t, "holdfast/epoch")[0].Value); got != "9" {
		t.Errorf("epoch is %s", got)
	}
}

func TestBumpWhoseReplyIsLostIsOneBump(t *testing.T) {
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	link.LoseReply("Txn", 1, codes.Unavailable)
	var j journal
	if got, err := fencing.BumpEpoch(t.Context(), link.Client(), "", 3, &j); got != 3 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if r := j.all(); len(r) != 1 || r[0].Err != nil || r[0].Detail != "epoch 0 → 3" {
		t.Errorf("audited: %+v", r)
	}
	if n := len(srv.History(t, "holdfast/epoch")); n != 1 {
		t.Errorf("written %d times", n)
	}
}

func ExampleBumpEpoch() {
	srv, err := etcdtest.New(nil) // your etcd
	if err != nil {
		panic(err)
	}
	defer srv.Close()
	cli, err := srv.NewClient()
	if err != nil {
		panic(err)
	}
	defer cli.Close()

	quiet := audit.Func(func(context.Context, audit.Record) {})
	for _, atLeast := range []int64{2, 1} {
		epoch, err := fencing.BumpEpoch(context.Background(), cli, "holdfast", atLeast, quiet)
		fmt.Println("at least", atLeast, "→", epoch, err)
	}
	// Output:
	// at least 2 → 2 <nil>
	// at least 1 → 2 <nil>
}
