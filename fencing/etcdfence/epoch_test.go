package etcdfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testkit/bubble"
)

const (
	epochKey     = "holdfast/epoch"
	largestEpoch = 1<<15 - 1
)

func TestEpochIsOnlyEverRaised(t *testing.T) {
	e := newEtcd(t)
	if epoch, err := etcdfence.Epoch(t.Context(), e.cli, ""); epoch != 0 || err != nil {
		t.Errorf("at first: %d, %v", epoch, err)
	}
	var j journal
	for _, step := range []struct{ atLeast, want int64 }{{1, 1}, {1, 1}, {5, 5}, {3, 5}, {1000, 1000}, {6, 1000}} {
		got, err := etcdfence.BumpEpoch(t.Context(), e.cli, "", step.atLeast, &j)
		if err != nil || got != step.want {
			t.Errorf("to at least %d: %d, %v; want %d", step.atLeast, got, err, step.want)
		}
		if got, err := etcdfence.Epoch(t.Context(), e.cli, ""); err != nil || got != step.want {
			t.Errorf("to at least %d: reads %d, %v", step.atLeast, got, err)
		}
	}
	var details []string
	for _, r := range j.Take() {
		details = append(details, r.Detail)
		if r.Event != audit.Bumped || r.Key != epochKey || r.Holder == "" || r.At.IsZero() || r.Err != nil {
			t.Errorf("record %+v", r)
		}
	}
	if got := strings.Join(e.values(epochKey), " "); got != "1 5 1000" {
		t.Errorf("etcd has seen %s", got)
	}
	if got := strings.Join(details, ", "); got != "epoch 0 → 1, epoch 1 → 5, epoch 5 → 1000" {
		t.Errorf("recorded %s", got)
	}
}

func TestInvalidBumpSendsNothing(t *testing.T) {
	e := newEtcd(t)
	var j journal
	bump := func(namespace string, atLeast int64) error {
		epoch, err := etcdfence.BumpEpoch(t.Context(), e.link.Client(), namespace, atLeast, &j)
		if epoch != 0 {
			t.Errorf("%q, %d: the epoch is said to be %d", namespace, atLeast, epoch)
		}
		return err
	}
	for _, atLeast := range []int64{0, -1, largestEpoch + 1, 1 << 48} {
		if err := bump("", atLeast); !isArgument(err, "atLeast") {
			t.Errorf("%d: %v", atLeast, err)
		} else {
			mustSay(t, err, fmt.Sprintf("is %d, not between 1 and %d", atLeast, largestEpoch))
		}
	}
	for _, ns := range []string{"a/b", "@a", strings.Repeat("n", 65)} {
		if err := bump(ns, 1); !errors.As(err, new(*holdfast.NameError)) {
			t.Errorf("namespace %q: %v", ns, err)
		}
	}
	if n, records := e.link.Count(), j.Take(); len(n) != 0 || len(records) != 0 {
		t.Errorf("sent %v, recorded %v", n, records)
	}
}

// A resource without a mark admits a token of any epoch that bumps can set, in one or more
// steps.
func TestBumpRefusesAStepThatGuardsWouldRefuse(t *testing.T) {
	e := newEtcd(t)
	for _, step := range []struct {
		atLeast int64
		refused bool
	}{{fencing.MaxEpochStep + 1, true}, {3, false}, {fencing.MaxEpochStep + 1, true}, {fencing.MaxEpochStep, false}} {
		sent, _ := e.rpcs(func() {
			_, err := etcdfence.BumpEpoch(t.Context(), e.link.Client(), "", step.atLeast, &journal{})
			if step.refused != errors.Is(err, fencing.ErrEpochStep) || !step.refused && err != nil {
				t.Errorf("to %d: %v", step.atLeast, err)
			}
		})
		if step.refused && sent["Txn"] != 0 {
			t.Errorf("to %d: sent %v", step.atLeast, sent)
		}
	}
	epoch, err := etcdfence.Epoch(t.Context(), e.cli, "")
	if epoch != fencing.MaxEpochStep || err != nil {
		t.Errorf("the epoch is %d, %v", epoch, err)
	}
	if err := claim(int64(newToken(t, epoch, 9))).CheckMark("new", fencing.Claim{}); err != nil {
		t.Errorf("a token of that epoch: %v", err)
	}
}

func TestEpochWithoutAClientIsAnArgumentError(t *testing.T) {
	if _, err := etcdfence.BumpEpoch(t.Context(), nil, "", 1, quiet); !isArgument(err, "kv") {
		t.Errorf("BumpEpoch: %v", err)
	}
	if _, err := etcdfence.Epoch(t.Context(), nil, ""); !isArgument(err, "kv") {
		t.Errorf("Epoch: %v", err)
	}
}

func TestValueThatIsNotAnEpochIsLeftUnchanged(t *testing.T) {
	e := newEtcd(t)
	for _, value := range []string{"", "x", "-1", "32768", "1.5", "99999999999999999999"} {
		e.put(t, "ns/epoch", value)
		_, err := etcdfence.BumpEpoch(t.Context(), e.cli, "ns", 7, nil)
		if err == nil {
			t.Fatalf("over %q: no error", value)
		}
		mustSay(t, err, "ns/epoch", fmt.Sprintf("%.64q is not a number from 0 to %d;", value, largestEpoch))
		if epoch, err := etcdfence.Epoch(t.Context(), e.cli, "ns"); err == nil || epoch != 0 {
			t.Errorf("%q is read as the epoch %d, %v", value, epoch, err)
		} else {
			mustSay(t, err, "etcdfence: read the epoch at \"ns/epoch\": ")
		}
		if got := string(e.Keys("ns/epoch")[0].Value); got != value {
			t.Errorf("%q became %q", value, got)
		}
	}
}

func TestConcurrentBumpsEndAtTheHighest(t *testing.T) {
	e := newEtcd(t)
	var wg sync.WaitGroup
	for i := range 8 {
		cli := e.Client(t)
		wg.Go(func() {
			got, err := etcdfence.BumpEpoch(t.Context(), cli, "", int64(i+1), &journal{})
			if err != nil || got < int64(i+1) {
				t.Errorf("to at least %d: %d, %v", i+1, got, err)
			}
		})
	}
	wg.Wait()
	last := ""
	for _, v := range e.values(epochKey) {
		if v <= last {
			t.Errorf("%s after %s", v, last)
		}
		last = v
	}
	if last != "8" {
		t.Errorf("ends at %s", last)
	}
}

func TestBumpThatArrivesLateDoesNotLowerTheEpoch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := newEtcd(t)
		e.link.Plan(holdTxns)
		ctx, cancel := context.WithCancel(t.Context())
		var j journal
		done := make(chan error)
		go func() { // ends with the receive below
			_, err := etcdfence.BumpEpoch(ctx, e.link.Client(), "", 3, &j)
			done <- err
		}()
		synctest.Wait() // the Txn is on its way
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		if r := j.Take(); len(r) != 1 || r[0].Err == nil {
			t.Errorf("a bump that may have happened is recorded as %+v", r)
		}
		if _, err := etcdfence.BumpEpoch(t.Context(), e.cli, "", 9, &j); err != nil {
			t.Fatal(err)
		}
		passTheHold()
		if got := string(e.Keys(epochKey)[0].Value); got != "9" {
			t.Errorf("the epoch is %s", got)
		}
	})
}

// Another process bumps while the Txn is on its way.
func TestBumpThatComesSecondSaysWhatTheEpochIs(t *testing.T) {
	for other, want := range map[int64]struct {
		epoch  int64
		detail string // of the record; "": none
	}{9: {9, ""}, 2: {3, "epoch 2 → 3"}} {
		bubble.Test(t, func(t *testing.T) {
			e := newEtcd(t)
			e.link.Plan(func(c etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{Request: time.Second} })
			var j journal
			done := make(chan error)
			go func() { // ends with the receive below
				got, err := etcdfence.BumpEpoch(t.Context(), e.link.Client(), "", 3, &j)
				if err == nil && got != want.epoch {
					err = fmt.Errorf("the epoch is said to be %d", got)
				}
				done <- err
			}()
			time.Sleep(3 * time.Second / 2)
			if _, err := etcdfence.BumpEpoch(t.Context(), e.cli, "", other, quiet); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Errorf("beside a bump to %d: %v", other, err)
			}
			details := ""
			for _, r := range j.Take() {
				details += r.Detail
			}
			if got := string(e.Keys(epochKey)[0].Value); got != fmt.Sprint(want.epoch) || details != want.detail {
				t.Errorf("beside a bump to %d: the epoch is %s, recorded %q", other, got, details)
			}
		})
	}
}

func TestBumpWhoseReplyIsLostIsOneBump(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := newEtcd(t)
		e.link.LoseReply("Txn", 1, codes.Unavailable)
		var j journal
		if got, err := etcdfence.BumpEpoch(t.Context(), e.link.Client(), "", 3, &j); got != 3 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
		if r := j.Take(); len(r) != 1 || r[0].Err != nil || r[0].Detail != "epoch 0 → 3" {
			t.Errorf("recorded %+v", r)
		}
		if got := e.values(epochKey); len(got) != 1 {
			t.Errorf("written: %v", got)
		}
	})
}

func ExampleBumpEpoch() {
	srv := etcdfake.New(etcdfake.Options{}) // your etcd
	defer srv.Close()
	for _, atLeast := range []int64{2, 1} {
		epoch, err := etcdfence.BumpEpoch(context.Background(), srv.Link().Client(), "holdfast", atLeast, quiet)
		fmt.Println("at least", atLeast, "→", epoch, err)
	}
	// Output:
	// at least 2 → 2 <nil>
	// at least 1 → 2 <nil>
}
