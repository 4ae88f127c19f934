package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
)

var semaphoreX = layout.Named("holdfast", holdfast.KindSemaphore, "x")

// What stands of a caller: its permit E or its turn T, with that weight, created at a revision; and the claim of
// either.

func keyOfA(kind string, weight int, rev int64, version int64) *mvccpb.KeyValue {
	permit := semaphoreX.PermitKey(weight, fmt.Sprintf("%x-AAAAAAAAAAAAAAAA", rev))
	name := map[string]string{
		"E": permit, "T": semaphoreX.TurnKey(permit),
		"claim of E": semaphoreX.ClaimKey(permit), "claim of T": semaphoreX.ClaimKey(semaphoreX.TurnKey(permit)),
	}[kind]
	mod := rev
	if version > 1 {
		mod = rev + 100
	}
	return &mvccpb.KeyValue{Key: []byte(name), CreateRevision: rev, ModRevision: mod, Version: version}
}

func anE(weight int, rev int64) []*mvccpb.KeyValue {
	return []*mvccpb.KeyValue{keyOfA("E", weight, rev, 1), keyOfA("claim of E", weight, rev, 1)}
}

func aT(weight int, rev int64) []*mvccpb.KeyValue {
	return []*mvccpb.KeyValue{keyOfA("T", weight, rev, 1), keyOfA("claim of T", weight, rev, 1)}
}

func aMarkedT(weight int, rev int64) []*mvccpb.KeyValue {
	return []*mvccpb.KeyValue{keyOfA("T", weight, rev, 2), keyOfA("claim of T", weight, rev, 2)}
}

func aDead(kind string, weight int, rev, version int64) []*mvccpb.KeyValue {
	return []*mvccpb.KeyValue{keyOfA("claim of "+kind, weight, rev, version)}
}

// inWords is a decision in words.
func inWords(n next) (s string) {
	if n.hold {
		s += "hold "
	}
	if n.tooHeavy {
		s += "too heavy "
	}
	if n.behind != nil {
		s += fmt.Sprintf("behind %d ", n.behind.CreateRevision)
	}
	for _, kv := range n.batch {
		s += fmt.Sprintf("mark %d ", kv.CreateRevision)
	}
	for _, c := range n.dead {
		if c.acquitted {
			s += fmt.Sprintf("clear %d ", c.rev)
		} else {
			s += fmt.Sprintf("wait for %d ", c.rev)
		}
	}
	if n.wait {
		s += "wait "
	}
	return strings.TrimSpace(s)
}

func standingOf(all ...[]*mvccpb.KeyValue) standing {
	limit := &mvccpb.KeyValue{
		Key: []byte(semaphoreX.LimitKey()), Value: []byte("3"), CreateRevision: 5, ModRevision: 5, Version: 1,
	}
	return standingIn(semaphoreX, append(slices.Concat(all...), limit)...)
}

func TestTurnDecidesByWhatStands(t *testing.T) {
	for name, c := range map[string]struct {
		stands [][]*mvccpb.KeyValue
		rev    int64
		limit  int
		want   string
	}{
		"alone":                   {[][]*mvccpb.KeyValue{aT(1, 20)}, 20, 1, "mark 20"},
		"no room":                 {[][]*mvccpb.KeyValue{anE(1, 10), aT(1, 20)}, 20, 1, "wait"},
		"no room beside a marked": {[][]*mvccpb.KeyValue{aMarkedT(1, 10), aT(1, 20)}, 20, 1, "wait"},
		"behind one that waits":   {[][]*mvccpb.KeyValue{anE(1, 10), aT(1, 20), aT(1, 21)}, 21, 1, "behind 20 wait"},
		"behind one that hangs":   {[][]*mvccpb.KeyValue{aT(1, 20), aT(1, 21), aT(1, 22)}, 22, 1, "behind 21 mark 20"},
		"all that fit": {
			[][]*mvccpb.KeyValue{anE(1, 10), aT(1, 20), aT(1, 21), aT(1, 22)}, 20, 3, "mark 20 mark 21",
		},
		"none passes a heavy one": {[][]*mvccpb.KeyValue{aT(1, 20), aT(3, 21), aT(1, 22)}, 20, 3, "mark 20"},
		"too heavy":               {[][]*mvccpb.KeyValue{anE(1, 10), aT(3, 20)}, 20, 2, "too heavy"},
		"a dead claim of a permit": {
			[][]*mvccpb.KeyValue{aDead("E", 1, 10, 1), aT(1, 20)}, 20, 1, "wait for 10",
		},
		"of a marked turn": {[][]*mvccpb.KeyValue{aDead("T", 1, 10, 2), aT(1, 20)}, 20, 1, "wait for 10"},
		"of a turn that waited, which costs nothing": {
			[][]*mvccpb.KeyValue{aDead("T", 1, 10, 1), aT(1, 20)}, 20, 1, "mark 20",
		},
		"of one that waited, and no room": {
			[][]*mvccpb.KeyValue{anE(1, 9), aDead("T", 1, 10, 1), aT(1, 20)}, 20, 1, "clear 10",
		},
		"room beside a dead claim": {[][]*mvccpb.KeyValue{aDead("E", 1, 10, 1), aT(1, 20)}, 20, 2, "mark 20"},
		"a dead claim, and no room without it": {
			[][]*mvccpb.KeyValue{aDead("E", 1, 10, 1), anE(1, 11), aT(1, 20)}, 20, 1, "wait",
		},
	} {
		t.Run(name, func(t *testing.T) {
			stand := slices.Concat(c.stands...)
			own := stand[slices.IndexFunc(stand, func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision == c.rev })]
			weight := layout.WeightOf(string(own.Key))
			decided := standingOf(stand).forTurn(c.rev, weight, layout.Limit{Permits: c.limit, Mod: 5})
			if got := inWords(decided); got != c.want {
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
		"beside others":         {[][]*mvccpb.KeyValue{anE(1, 10), aMarkedT(1, 11)}, 1, 3, 5, "hold"},
		"no room":               {[][]*mvccpb.KeyValue{anE(1, 10), aMarkedT(1, 11)}, 1, 2, 5, "wait"},
		"a heavy one":           {[][]*mvccpb.KeyValue{anE(1, 10)}, 3, 3, 5, "wait"},
		"the limit was changed": {nil, 1, 1, 25, "wait"},
		"a dead claim":          {[][]*mvccpb.KeyValue{aDead("E", 1, 10, 1)}, 1, 1, 5, "wait for 10"},
		"of one that waited":    {[][]*mvccpb.KeyValue{aDead("T", 1, 10, 1)}, 1, 1, 5, "hold"},
		"a dead claim, and no room without it": {
			[][]*mvccpb.KeyValue{aDead("E", 1, 10, 1), anE(1, 11)}, 1, 1, 5, "wait",
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := layout.Limit{Permits: c.limit, Mod: c.changed}
			decided := standingOf(c.stands...).forPermit(20, c.weight, now)
			if got := inWords(decided); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestOneTxnMarksNoMoreThanEtcdTakes(t *testing.T) {
	var stand [][]*mvccpb.KeyValue
	for rev := range int64(maxBatch + 10) {
		stand = append(stand, aT(1, 20+rev))
	}
	if n := len(standingOf(stand...).forTurn(20, 1, layout.Limit{Permits: 1000, Mod: 5}).batch); n != maxBatch {
		t.Errorf("%d are marked, want %d", n, maxBatch)
	}
}
