package kubelock_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/contrib/kubelock"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
)

// The errors by which client-go's elector decides.
func TestErrorsAreThoseOfAnAPIServer(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := t.Context()
		a, b := candidate(t, srv.Link(), "a"), candidate(t, srv.Link(), "b")
		if _, _, err := a.Get(ctx); !apierrors.IsNotFound(err) {
			t.Errorf("Get of nothing: %v", err)
		}
		if err := a.Update(ctx, of("a")); err == nil || apierrors.IsConflict(err) {
			t.Errorf("Update of nothing: %v", err)
		}
		if err := a.Create(ctx, of("a")); err != nil {
			t.Errorf("Create: %v", err)
		}
		if err := b.Create(ctx, of("b")); !apierrors.IsAlreadyExists(err) {
			t.Errorf("the second Create: %v", err)
		}
		record, raw, err := b.Get(ctx)
		if err != nil || record.HolderIdentity != "a" {
			t.Fatalf("Get: %v, %v", record, err)
		}
		var in resourcelock.LeaderElectionRecord
		if json.Unmarshal(raw, &in) != nil || in != *record || len(srv.Keys(recordKey)) != 2 {
			t.Errorf("the record is %s, the keys %v", raw, srv.Keys(recordKey))
		}
		if err := a.Update(ctx, of("a")); err != nil {
			t.Errorf("Update: %v", err)
		}
		if err := b.Update(ctx, of("b")); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), recordKey) {
			t.Errorf("Update of a record that has changed: %v", err)
		}
		var bad *holdfast.ArgumentError
		if err := a.Update(ctx, of("b")); !errors.As(err, &bad) {
			t.Errorf("Update for another: %v", err)
		}
		if a.Identity() != "a" || !strings.Contains(a.Describe(), recordKey) {
			t.Errorf("%s, %s", a.Identity(), a.Describe())
		}
	})
}

// A renewal is one request: nothing is read before.
func TestUpdateIsOneRequest(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		a := candidate(t, link, "a")
		if err := a.Create(t.Context(), of("a")); err != nil {
			t.Fatal(err)
		}
		before := requests(link)
		for range 10 {
			if err := a.Update(t.Context(), of("a")); err != nil {
				t.Fatal(err)
			}
		}
		if n := requests(link) - before; n != 10 {
			t.Errorf("%d requests, want 10", n)
		}
	})
}

// The token is that of the term, above those of earlier ones, and only the last term writes.
func TestTermsAreFenced(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := t.Context()
		a, b := candidate(t, srv.Link(), "a"), candidate(t, srv.Link(), "b")
		none := a.Term()
		if none != nil || none.Token() != 0 || !errors.Is(none.Check(), holdfast.ErrNoToken) {
			t.Error("a term before the first record")
		}
		if _, err := etcdfence.NewWriter(none).Put(ctx, "state", "0"); !errors.Is(err, holdfast.ErrNoToken) {
			t.Errorf("without a term: %v", err)
		}
		if err := errors.Join(a.Create(ctx, of("a")), a.Update(ctx, of("a"))); err != nil {
			t.Fatal(err)
		}
		first := a.Term()
		if err := a.Update(ctx, of("a")); err != nil || a.Term() != first || first.Check() != nil {
			t.Errorf("renewed: %v, %v", err, first.Check())
		}
		if _, err := etcdfence.NewWriter(first).Put(ctx, "state", "1"); err != nil {
			t.Errorf("the leader writes: %v", err)
		}

		// b takes over as client-go does when a has not renewed: a does not know yet.
		if _, _, err := b.Get(ctx); err != nil {
			t.Fatal(err)
		}
		if err := b.Update(ctx, of("b")); err != nil {
			t.Fatal(err)
		}
		second := b.Term()
		if second.Token() <= first.Token() || second.Name() != "shop/operator" {
			t.Errorf("tokens %v, then %v, of %q", first.Token(), second.Token(), second.Name())
		}
		if _, err := etcdfence.NewWriter(first).Put(ctx, "state", "late"); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("the deposed leader writes: %v", err)
		}
		if _, _, err := a.Get(ctx); err != nil {
			t.Fatal(err)
		}
		var lost *holdfast.LostError
		if err := first.Check(); a.Term() != nil || !errors.As(err, &lost) || lost.Token != first.Token() {
			t.Errorf("the deposed leader: %v", err)
		}

		// Released as client-go does, with ReleaseOnCancel.
		if err := b.Update(ctx, resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}); err != nil {
			t.Fatal(err)
		}
		if err := second.Check(); b.Term() != nil || !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("released: %v", err)
		}
		if keys := srv.Keys(recordKey + "/@"); len(keys) != 0 { // what the writes of the term compare
			t.Errorf("released, but its holder is still there: %v", keys)
		}

		if _, err := etcdfence.BumpEpoch(ctx, srv.Client(t).KV, "", 1, nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.Get(ctx); err != nil {
			t.Fatal(err)
		}
		if err := a.Update(ctx, of("a")); err != nil || a.Term().Token().Epoch() != 1 {
			t.Errorf("after the epoch was raised: %v, token %v", err, a.Term())
		}
	})
}

// A deposed leader of client-go, which does not know it yet, reads its successor's record right before it releases.
func TestReleaseLeavesTheSuccessorsTerm(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx := t.Context()
		a, b := candidate(t, srv.Link(), "a"), candidate(t, srv.Link(), "b")
		if err := a.Create(ctx, of("a")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Get(ctx); err != nil {
			t.Fatal(err)
		}
		if err := b.Update(ctx, of("b")); err != nil {
			t.Fatal(err)
		}
		term, before := b.Term(), srv.Keys(recordKey)

		release := resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}
		if _, _, err := a.Get(ctx); err != nil {
			t.Fatal(err)
		}
		if err := a.Update(ctx, release); !apierrors.IsConflict(err) {
			t.Errorf("a releases the record of b: %v", err)
		}
		if after := srv.Keys(recordKey); !reflect.DeepEqual(after, before) {
			t.Errorf("the keys are %v, want %v", after, before)
		}
		if _, err := etcdfence.NewWriter(term).Put(ctx, "state", "1"); err != nil {
			t.Errorf("b writes: %v", err)
		}
		if err := b.Update(ctx, of("b")); err != nil || b.Term() != term {
			t.Errorf("b renews: %v", err)
		}

		// What has no holder any more is not released once more.
		if err := b.Update(ctx, release); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.Get(ctx); err != nil {
			t.Fatal(err)
		}
		if err := a.Update(ctx, release); !apierrors.IsConflict(err) {
			t.Errorf("a releases what nobody holds: %v", err)
		}
	})
}

// A renewal that was carried out but not answered keeps the term.
func TestRenewalOfUnknownOutcomeKeepsTheTerm(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		ctx, link := t.Context(), srv.Link()
		a := candidate(t, link, "a")
		if err := a.Create(ctx, of("a")); err != nil {
			t.Fatal(err)
		}
		term := a.Term()
		link.LoseReply("Txn", 1, codes.Unavailable)
		if err := a.Update(ctx, of("a")); err == nil || !strings.Contains(err.Error(), recordKey) {
			t.Errorf("the reply was lost: %v", err)
		}
		if err := a.Update(ctx, of("a")); !apierrors.IsConflict(err) {
			t.Errorf("its revision is not known: %v", err)
		}
		if _, _, err := a.Get(ctx); err != nil {
			t.Fatal(err)
		}
		if err := a.Update(ctx, of("a")); err != nil || a.Term() != term || term.Check() != nil {
			t.Errorf("%v, the same term: %v, %v", err, a.Term() == term, term.Check())
		}
	})
}

// A term is trusted for nine tenths of LeaseDuration from its last renewal, and a loss that was reported is final.
func TestTermExpires(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		a := candidate(t, srv.Link(), "a")
		if err := a.Create(t.Context(), of("a")); err != nil {
			t.Fatal(err)
		}
		term := a.Term()
		time.Sleep(10 * time.Second)
		if err := a.Update(t.Context(), of("a")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(13 * time.Second)
		if err := term.Check(); err != nil {
			t.Errorf("after 13 s: %v", err)
		}
		time.Sleep(time.Second)
		var lost *holdfast.LostError
		err := term.Check()
		if !errors.As(err, &lost) || lost.Cause != holdfast.CauseExpired || lost.Since != 14*time.Second {
			t.Errorf("after 14 s: %v", err)
		}
		if err := a.Update(t.Context(), of("a")); err != nil {
			t.Fatal(err)
		}
		if next := a.Term(); next == term || next.Token() <= term.Token() || next.Check() != nil || term.Check() == nil {
			t.Errorf("renewed afterwards: token %v after %v", next.Token(), term.Token())
		}
	})
}

// A request that hangs ends after Timeout and says what it was about.
func TestRequestIsBounded(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		a := candidate(t, link, "a")
		link.BlackHole()
		start := time.Now()
		_, _, err := a.Get(t.Context())
		if d := time.Since(start); err == nil || apierrors.IsNotFound(err) || d != 2*time.Second ||
			!strings.Contains(err.Error(), recordKey) {
			t.Errorf("after %v: %v", d, err)
		}
	})
}

func TestNewRefusesBadArguments(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var argument *holdfast.ArgumentError
		var name *holdfast.NameError
		if _, err := kubelock.New(nil, "x", "a", kubelock.Options{}); !errors.As(err, &argument) ||
			argument.Argument != "cli" {
			t.Errorf("%v", err)
		}
		_, err := kubelock.New(srv.Client(t), "x", "", kubelock.Options{})
		if !errors.As(err, &argument) || argument.Argument != "identity" {
			t.Errorf("%v", err)
		}
		o := kubelock.Options{Namespace: "a/b"}
		_, err = kubelock.New(srv.Client(t), "x", "a", o)
		if !errors.As(err, &argument) || argument.Argument != "Options.Namespace" {
			t.Errorf("%v", err)
		}
		if _, err := kubelock.New(srv.Client(t), "x/@", "a", kubelock.Options{}); !errors.As(err, &name) {
			t.Errorf("%v", err)
		}
	})
}
