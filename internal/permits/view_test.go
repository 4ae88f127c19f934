package permits_test

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/permits"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

var at = layout.Named("holdfast", holdfast.KindSemaphore, "x")

// What stands of a caller: its permit E or its turn T, with that weight, created at a revision; and the claim of
// either.

func key(kind string, weight int, rev int64, version int64) *mvccpb.KeyValue {
	permit := at.PermitKey(weight, fmt.Sprintf("%x-AAAAAAAAAAAAAAAA", rev))
	name := map[string]string{
		"E": permit, "T": at.TurnKey(permit),
		"claim of E": at.ClaimKey(permit), "claim of T": at.ClaimKey(at.TurnKey(permit)),
	}[kind]
	mod := rev
	if version > 1 {
		mod = rev + 100
	}
	return &mvccpb.KeyValue{Key: []byte(name), CreateRevision: rev, ModRevision: mod, Version: version}
}

func permit(weight int, rev int64) []*mvccpb.KeyValue {
	return []*mvccpb.KeyValue{key("E", weight, rev, 1), key("claim of E", weight, rev, 1)}
}

func turn(weight int, rev int64) []*mvccpb.KeyValue {
	return []*mvccpb.KeyValue{key("T", weight, rev, 1), key("claim of T", weight, rev, 1)}
}

func marked(weight int, rev int64) []*mvccpb.KeyValue {
	return []*mvccpb.KeyValue{key("T", weight, rev, 2), key("claim of T", weight, rev, 2)}
}

func dead(kind string, weight int, rev, version int64) []*mvccpb.KeyValue {
	return []*mvccpb.KeyValue{key("claim of "+kind, weight, rev, version)}
}

// told is a decision in words.
func told(n permits.Next) (s string) {
	if n.Hold {
		s += "hold "
	}
	if n.TooHeavy {
		s += "too heavy "
	}
	if n.Behind != nil {
		s += fmt.Sprintf("behind %d ", n.Behind.CreateRevision)
	}
	for _, kv := range n.Batch {
		s += fmt.Sprintf("mark %d ", kv.CreateRevision)
	}
	for _, c := range n.Dead {
		if c.Acquitted {
			s += fmt.Sprintf("clear %d ", c.Rev)
		} else {
			s += fmt.Sprintf("wait for %d ", c.Rev)
		}
	}
	if n.Wait {
		s += "wait "
	}
	if s == "" {
		return "nothing"
	}
	return s[:len(s)-1]
}

func read(all ...[]*mvccpb.KeyValue) permits.View {
	limit := &mvccpb.KeyValue{
		Key: []byte(at.LimitKey()), Value: []byte("3"), CreateRevision: 5, ModRevision: 5, Version: 1,
	}
	return permits.Read(at, append(slices.Concat(all...), limit)...)
}

func TestTurnDecidesByWhatStands(t *testing.T) {
	for name, c := range map[string]struct {
		stands [][]*mvccpb.KeyValue
		rev    int64
		limit  int
		want   string
	}{
		"alone":                   {[][]*mvccpb.KeyValue{turn(1, 20)}, 20, 1, "mark 20"},
		"no room":                 {[][]*mvccpb.KeyValue{permit(1, 10), turn(1, 20)}, 20, 1, "wait"},
		"no room beside a marked": {[][]*mvccpb.KeyValue{marked(1, 10), turn(1, 20)}, 20, 1, "wait"},
		"behind one that waits":   {[][]*mvccpb.KeyValue{permit(1, 10), turn(1, 20), turn(1, 21)}, 21, 1, "behind 20 wait"},
		"behind one that hangs":   {[][]*mvccpb.KeyValue{turn(1, 20), turn(1, 21), turn(1, 22)}, 22, 1, "behind 21 mark 20"},
		"all that fit": {
			[][]*mvccpb.KeyValue{permit(1, 10), turn(1, 20), turn(1, 21), turn(1, 22)}, 20, 3, "mark 20 mark 21",
		},
		"none passes a heavy one": {[][]*mvccpb.KeyValue{turn(1, 20), turn(3, 21), turn(1, 22)}, 20, 3, "mark 20"},
		"too heavy":               {[][]*mvccpb.KeyValue{permit(1, 10), turn(3, 20)}, 20, 2, "too heavy"},
		"a dead claim of a permit": {
			[][]*mvccpb.KeyValue{dead("E", 1, 10, 1), turn(1, 20)}, 20, 1, "wait for 10",
		},
		"of a marked turn": {[][]*mvccpb.KeyValue{dead("T", 1, 10, 2), turn(1, 20)}, 20, 1, "wait for 10"},
		"of a turn that waited, which costs nothing": {
			[][]*mvccpb.KeyValue{dead("T", 1, 10, 1), turn(1, 20)}, 20, 1, "mark 20",
		},
		"of one that waited, and no room": {
			[][]*mvccpb.KeyValue{permit(1, 9), dead("T", 1, 10, 1), turn(1, 20)}, 20, 1, "clear 10",
		},
		"room beside a dead claim": {[][]*mvccpb.KeyValue{dead("E", 1, 10, 1), turn(1, 20)}, 20, 2, "mark 20"},
		"a dead claim, and no room without it": {
			[][]*mvccpb.KeyValue{dead("E", 1, 10, 1), permit(1, 11), turn(1, 20)}, 20, 1, "wait",
		},
		"it is marked meanwhile": {[][]*mvccpb.KeyValue{marked(1, 20)}, 20, 1, "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			next := read(c.stands...).Turn(c.rev, layout.Limit{Permits: c.limit, Mod: 5})
			if got := told(next); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestPermitDecidesByWhatStandsAhead(t *testing.T) {
	for name, c := range map[string]struct {
		stands  [][]*mvccpb.KeyValue
		weight  int
		limit   int
		changed int64
		want    string
	}{
		"alone":                 {nil, 1, 1, 5, "hold"},
		"beside others":         {[][]*mvccpb.KeyValue{permit(1, 10), marked(1, 11)}, 1, 3, 5, "hold"},
		"no room":               {[][]*mvccpb.KeyValue{permit(1, 10), marked(1, 11)}, 1, 2, 5, "wait"},
		"a heavy one":           {[][]*mvccpb.KeyValue{permit(1, 10)}, 3, 3, 5, "wait"},
		"the limit was changed": {nil, 1, 1, 25, "wait"},
		"a dead claim":          {[][]*mvccpb.KeyValue{dead("E", 1, 10, 1)}, 1, 1, 5, "wait for 10"},
		"of one that waited":    {[][]*mvccpb.KeyValue{dead("T", 1, 10, 1)}, 1, 1, 5, "hold"},
		"a dead claim, and no room without it": {
			[][]*mvccpb.KeyValue{dead("E", 1, 10, 1), permit(1, 11)}, 1, 1, 5, "wait",
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := layout.Limit{Permits: c.limit, Mod: c.changed}
			next := read(c.stands...).Permit(20, c.weight, now)
			if got := told(next); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestOneTxnMarksNoMoreThanEtcdTakes(t *testing.T) {
	var stand [][]*mvccpb.KeyValue
	for rev := range int64(permits.MaxBatch + 10) {
		stand = append(stand, turn(1, 20+rev))
	}
	if n := len(read(stand...).Turn(20, layout.Limit{Permits: 1000, Mod: 5}).Batch); n != permits.MaxBatch {
		t.Errorf("%d are marked, want %d", n, permits.MaxBatch)
	}
}
