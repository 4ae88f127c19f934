package fencing_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

func holders(ctx context.Context) (all []fencing.Holder) {
	for h := range fencing.Holds(ctx) {
		all = append(all, h.(fencing.Holder))
	}
	return all
}

func TestContextCarriesTheInnermostHolder(t *testing.T) {
	ctx := t.Context()
	if h, ok := fencing.FromContext(ctx); ok || h != nil {
		t.Errorf("an empty context carries %v", h)
	}
	if got := holders(ctx); len(got) != 0 {
		t.Errorf("an empty context has holders %v", got)
	}
	var want []fencing.Holder
	for n := range holdfast.Token(5) {
		h := &holder{token: n + 1}
		type key struct{}
		ctx = context.WithValue(fencing.NewContext(ctx, h), key{}, n) // with other values in between
		want = slices.Insert(want, 0, fencing.Holder(h))
		if got, ok := fencing.FromContext(ctx); !ok || got != h {
			t.Errorf("FromContext is %v, %t; want token %v", got, ok, h.token)
		}
		if got := holders(ctx); !slices.Equal(got, want) {
			t.Errorf("Holders are %v, want %v", got, want)
		}
	}
}

func TestContextsDoNotShareHoldersAddedLater(t *testing.T) {
	outer, a, b := &holder{token: 1}, &holder{token: 2}, &holder{token: 3}
	ctx := fencing.NewContext(t.Context(), outer)
	left, right := fencing.NewContext(ctx, a), fencing.NewContext(ctx, b)
	for c, want := range map[context.Context][]fencing.Holder{ctx: {outer}, left: {a, outer}, right: {b, outer}} {
		if got := holders(c); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestHoldsStopsWhenAsked(t *testing.T) {
	ctx := fencing.NewContext(fencing.NewContext(t.Context(), &holder{token: 1}), &holder{token: 2})
	var seen []holdfast.Token
	for h := range fencing.Holds(ctx) {
		seen = append(seen, h.(fencing.Holder).Token())
		break
	}
	if !slices.Equal(seen, []holdfast.Token{2}) {
		t.Errorf("saw %v", seen)
	}
}

// A function that got a nil lock must not write under an outer one.
func TestNilHolderHidesTheOuterOne(t *testing.T) {
	outer := &holder{token: 1}
	for name, none := range map[string]fencing.Holder{"nil": nil, "nil pointer": (*holder)(nil)} {
		t.Run(name, func(t *testing.T) {
			ctx := fencing.NewContext(fencing.NewContext(t.Context(), outer), none)
			if h, ok := fencing.FromContext(ctx); ok || h != nil {
				t.Errorf("FromContext is %v, %t", h, ok)
			}
			if got := holders(ctx); !slices.Equal(got, []fencing.Holder{outer}) {
				t.Errorf("Holders are %v", got)
			}
		})
	}
}

func TestLookingUpAHolderDoesNotAllocate(t *testing.T) {
	ctx := t.Context()
	for n := range holdfast.Token(3) {
		ctx = fencing.NewContext(ctx, &holder{token: n + 1})
	}
	var sum holdfast.Token
	allocs := testing.AllocsPerRun(100, func() {
		if h, ok := fencing.FromContext(ctx); ok {
			sum += h.Token()
		}
		if _, ok := fencing.FromContext(context.Background()); ok {
			sum = 0
		}
	})
	if allocs != 0 || sum == 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestClaimContextCarriesItsClaim(t *testing.T) {
	type key struct{}
	outer := context.WithValue(t.Context(), key{}, "kept")
	ctx := fencing.NewClaimContext(outer, claim(7))
	if got, ok := fencing.ClaimFromContext(context.WithValue(ctx, key{}, "inner")); !ok || got != claim(7) {
		t.Errorf("carries %v, %v", got, ok)
	}
	if ctx.Value(key{}) != "kept" {
		t.Error("values of the outer context are hidden")
	}
	if _, ok := fencing.ClaimFromContext(outer); ok {
		t.Error("a context without a claim has one")
	}
	if _, ok := fencing.FromContext(ctx); ok {
		t.Error("a claim was taken for a holder of this process")
	}
}

func BenchmarkFromContext(b *testing.B) {
	ctx := fencing.NewContext(context.Background(), &holder{token: 1})
	b.ReportAllocs()
	for b.Loop() {
		fencing.FromContext(ctx)
	}
}

func BenchmarkHolds(b *testing.B) {
	ctx := fencing.NewContext(fencing.NewContext(context.Background(), &holder{token: 1}), &holder{token: 2})
	b.ReportAllocs()
	for b.Loop() {
		for h := range fencing.Holds(ctx) {
			_ = h.Name()
		}
	}
}

// store stands for code far from where the lock was acquired.
func store(ctx context.Context) {
	h, ok := fencing.FromContext(ctx)
	if !ok {
		fmt.Println("no lock is held here")
		return
	}
	fmt.Println("writing with token", h.Token())
}

func ExampleFromContext() {
	ctx := context.Background()
	store(ctx)

	lk := &holder{token: 4711}         // in your program a *locker.Lock or *election.Term
	store(fencing.NewContext(ctx, lk)) // the scoped forms do this
	// Output:
	// no lock is held here
	// writing with token 4711
}

func ExampleHolds() {
	ctx := fencing.NewContext(context.Background(), &holder{token: 7})
	ctx = fencing.NewContext(ctx, &holder{token: 9})
	for h := range fencing.Holds(ctx) {
		fmt.Println(h.(fencing.Source).Token())
	}
	// Output:
	// 9
	// 7
}
