package front

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

// newReader returns a reader of the front of lock x.
func newReader(t *testing.T, srv *etcdfake.Server) *Monitor {
	t.Helper()
	return bareReader(t, srv.Client(t), "x")
}

func mustRead(t *testing.T, r *Monitor) Front {
	t.Helper()
	f, err := r.Read(kit.Within(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A token of an epoch that was raised later would shut out the holder's own writes; one that is too small does not.
func TestTokenOfTheFrontHasNoLaterEpoch(t *testing.T) {
	const epochKey = "holdfast/epoch"
	set := func(epoch int) func(*etcdfake.Server) {
		return func(srv *etcdfake.Server) { srv.Put(epochKey, strconv.Itoa(epoch)) }
	}
	nothing := func(*etcdfake.Server) {}
	for name, c := range map[string]struct {
		before, after func(*etcdfake.Server)
		epoch         int64
	}{
		"none":                  {nothing, nothing, 0},
		"set before":            {set(3), nothing, 3},
		"raised since":          {set(3), set(5), 0},
		"first set since":       {nothing, set(5), 0},
		"deleted since":         {set(3), func(srv *etcdfake.Server) { srv.Delete(epochKey) }, 0},
		"deleted and set since": {set(3), func(srv *etcdfake.Server) { srv.Delete(epochKey); set(5)(srv) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				c.before(srv)
				kit.Join(t, srv, kit.Entries("x"))
				c.after(srv)
				f := mustRead(t, newReader(t, srv))
				if want := c.epoch<<48 | f.Entry.CreateRevision; int64(f.Token) != want {
					t.Errorf("token %d, want %d", f.Token, want)
				}
			})
		})
	}
}

func TestEpochThatIsNoNumberIsAnErrorThatNamesItsKey(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		for _, epoch := range []string{"three", "-1", "32768"} {
			srv.Put("holdfast/epoch", epoch)
			kit.Join(t, srv, kit.Entries(epoch))
			_, err := bareReader(t, srv.Client(t), epoch).Read(kit.Within(t, time.Minute))
			want := fmt.Sprintf(`"holdfast/epoch" is not a number from 0 to 32767: %q`, epoch)
			if err == nil || !strings.Contains(err.Error(), want) || errors.As(err, new(*holdfast.ArgumentError)) {
				t.Errorf("%s: %v", epoch, err)
			}
		}
	})
}

// The same entry keeps the token that was read first, before the epoch was raised.
func TestFrontKeepsItsTokenWhileItsEntryStands(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		srv.Put("holdfast/epoch", "3")
		first := kit.Join(t, srv, kit.Entries("x"))
		r := newReader(t, srv)
		before := mustRead(t, r)
		srv.Put("holdfast/epoch", "5")
		f, err := r.read(t.Context(), before)
		if err != nil || f.Token != before.Token || f.Token.Epoch() != 3 || !f.same(before) {
			t.Errorf("%+v, before %+v: %v", f, before, err)
		}
		second := kit.Join(t, srv, kit.Entries("x"))
		first.Release()
		f, err = r.read(t.Context(), before)
		if err != nil || string(f.Entry.Key) != second.Key || f.Token.Epoch() != 5 || f.same(before) {
			t.Errorf("the next one: %+v: %v", f, err)
		}
	})
}

func TestFrontIsTheOldestEntry(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		r := newReader(t, srv)
		if f := mustRead(t, r); f.Entry != nil || f.Token != 0 || f.Revision == 0 || !f.same(Front{}) {
			t.Errorf("empty: %+v", f)
		}
		oldest := kit.JoinReader(t, srv, kit.Entries("x"))
		kit.Join(t, srv, kit.Entries("x"))
		srv.Put(oldest.Key, "written later")
		f := mustRead(t, r)
		if f.Entry == nil || string(f.Entry.Key) != oldest.Key || f.Value.Data != "written later" {
			t.Errorf("%+v", f)
		}
	})
}

func TestFrontsAreTheSameByEntryAndValue(t *testing.T) {
	t.Parallel()
	kv := func(key string, created, mod int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(key), CreateRevision: created, ModRevision: mod}
	}
	for name, c := range map[string]struct {
		a, b        *mvccpb.KeyValue
		same, holds bool
	}{
		"both empty":        {nil, nil, true, false},
		"one empty":         {kv("a", 1, 1), nil, false, false},
		"the other":         {nil, kv("a", 1, 1), false, false},
		"the same":          {kv("a", 1, 2), kv("a", 1, 2), true, true},
		"another value":     {kv("a", 1, 2), kv("a", 1, 3), false, true},
		"put again":         {kv("a", 1, 2), kv("a", 3, 3), false, false},
		"at another key":    {kv("a", 1, 2), kv("b", 1, 2), false, false},
		"another, put then": {kv("a", 1, 1), kv("b", 2, 2), false, false},
	} {
		a, b := Front{Entry: c.a}, Front{Entry: c.b}
		if a.same(b) != c.same || c.b != nil && a.holds(c.b) != c.holds {
			t.Errorf("%s: same %v, holds %v", name, a.same(b), !c.holds)
		}
	}
}
