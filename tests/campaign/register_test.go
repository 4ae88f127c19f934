//go:build linux

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/tests/internal/register"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A journal is a record of two holders, one after the other, and of what they did with a register.
type journal struct {
	*recorded
	key string
	of  [2]*oracle.Hold
}

func newJournal() *journal {
	rec := heldFrom(10*time.Second, 15*time.Second)
	return &journal{rec, oracle.DataKey(oracle.LockPart("x", false).Prefix), [2]*oracle.Hold(rec.Record.Holds)}
}

// wrote adds a change of the register, between seconds 11 and 12 of the first holder's time.
func (j *journal) wrote(value string) {
	c := oracle.Change{Revision: j.of[0].Token.Revision(), After: 11 * time.Second, Before: 12 * time.Second,
		Kv: &mvccpb.KeyValue{Key: []byte(j.key), Value: []byte(value)}}
	changes := j.Record.Changes
	j.Record.Changes = append(changes[:1:1], append([]oracle.Change{c}, changes[1:]...)...)
}

// used adds an operation that took half a second.
func (j *journal) used(at time.Duration, op registerOp) {
	op.Key, op.Call, op.Return = j.key, at, at+time.Second/2
	j.Used = append(j.Used, op)
}

func put(token holdfast.Token, value string) registerOp {
	return registerOp{Op: register.Op{Token: token, Value: value}}
}

func read(value string) registerOp {
	return registerOp{Op: register.Op{Read: true, Value: value}}
}

func TestRegisterThatIsNotLinearizableIsAViolation(t *testing.T) {
	const s = time.Second
	const text = "data/lock/x/@/ is not linearizable"
	unknown := func(op registerOp) registerOp {
		op.Unknown = true
		return op
	}
	for name, c := range map[string]struct {
		story func(j *journal, first, second holdfast.Token)
		wrong bool
	}{
		"two holders": {story: func(j *journal, first, second holdfast.Token) {
			j.used(11*s, put(first, "a"))
			j.used(16*s, put(second, "b"))
			j.used(17*s, read("b"))
		}},
		"a stale write": {wrong: true, story: func(j *journal, first, second holdfast.Token) {
			j.used(16*s, put(second, "b"))
			j.used(17*s, put(first, "a"))
		}},
		"a lost write": {wrong: true, story: func(j *journal, first, second holdfast.Token) {
			j.used(11*s, put(first, "a"))
			j.used(16*s, put(second, "b"))
			j.used(17*s, read("a"))
		}},
		"of unknown outcome, without effect": {story: func(j *journal, first, _ holdfast.Token) {
			j.used(11*s, put(first, "a"))
			j.used(12*s, unknown(put(first, "u")))
			j.used(13*s, read("a"))
		}},
		"of unknown outcome, without effect, and read": {wrong: true, story: func(j *journal, first, _ holdfast.Token) {
			j.used(11*s, put(first, "a"))
			j.used(12*s, unknown(put(first, "u")))
			j.used(13*s, read("u"))
		}},
		"of unknown outcome, late": {story: func(j *journal, first, _ holdfast.Token) {
			j.wrote("process 0#2") // before second 12
			j.used(10*s, unknown(put(first, "process 0#2")))
			j.used(10*s+s/2, put(first, "a"))
			j.used(11*s+s/4, read("process 0#2"))
		}},
		"of a killed process": {story: func(j *journal, first, second holdfast.Token) {
			j.wrote("process 0#1")
			j.used(13*s, read("process 0#1"))
			j.used(16*s, put(second, "b"))
		}},
		"of a killed process, after a larger token": {wrong: true, story: func(j *journal, first, second holdfast.Token) {
			j.used(10*s, put(second, "b"))
			j.wrote("process 0#1")
			j.of[0].Granted = 11 * s
		}},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal()
			c.story(j, j.of[0].Token, j.of[1].Token)
			got := strings.Join(j.judge().Violations, "\n")
			if strings.Contains(got, text) != c.wrong {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestMarkThatIsRefusedNeedsALargerOne(t *testing.T) {
	j := newJournal()
	mark := func(at time.Duration, token holdfast.Token, refused bool) registerOp {
		return registerOp{Key: "holdfast/mark/x", Op: register.Op{Token: token, Value: token.String(), Refused: refused,
			Mark: true, Call: at, Return: at + time.Second}}
	}
	first, second := j.of[0].Token, j.of[1].Token
	j.Used = []registerOp{mark(11*time.Second, first, false), mark(16*time.Second, second, false),
		mark(18*time.Second, first, true)}
	if got := j.judge().Violations; len(got) > 0 {
		t.Errorf("%q", got)
	}
	j.Used = j.Used[:2]
	j.Used = append(j.Used, mark(13*time.Second, first, true))
	if got := j.judge().Violations; len(got) != 1 || !strings.Contains(got[0], "holdfast/mark/x is not linearizable") {
		t.Errorf("%q", got)
	}
}

// The second try of a call is refused by the second holder's mark, although its first try had raised the mark. So a
// call with a smaller token was refused before the second holder came.
func TestMarkOfACallThatIsRefusedIsKnownFromTheHistory(t *testing.T) {
	j := newJournal()
	j.key = "holdfast/mark/x"
	first, second := j.of[0].Token, j.of[1].Token
	mark := func(token holdfast.Token, refused bool) registerOp {
		return registerOp{Op: register.Op{Token: token, Value: token.String(), Refused: refused, Mark: true}}
	}
	j.used(13*time.Second, mark(first-1, true))
	j.used(16*time.Second, mark(second, false))
	tries := mark(first, true)
	tries.Key, tries.Call, tries.Return = j.key, 11*time.Second, 18*time.Second
	j.Used = append(j.Used, tries)
	if got := j.judge().Violations; len(got) != 1 || !strings.Contains(got[0], "is not linearizable") {
		t.Errorf("without the mark in etcd's history: %q", got)
	}
	j.wrote("x " + first.String())
	if got := j.judge().Violations; len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func TestRegistersAndOverrunsAreJudgedAgain(t *testing.T) {
	j := newJournal()
	j.used(16*time.Second, put(j.of[1].Token, "b"))
	j.used(17*time.Second, put(j.of[0].Token, "a"))
	j.Overruns = []overrun{{Of: of(j.of[0]), Cause: holdfast.CauseExpired, At: 14 * time.Second}}
	j.Overstays = []overrun{{Of: of(j.of[1]), Cause: holdfast.CauseExpired, At: 19 * time.Second, For: 2e9}}
	j.Returned = map[string]time.Duration{of(j.of[0]): 12 * time.Second}
	file := filepath.Join(t.TempDir(), recordFile)
	if err := j.store(file); err != nil {
		t.Fatal(err)
	}
	again, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	first, second := j.judge().Violations, again.judge().Violations
	if len(first) != 3 || !slices.Equal(first, second) {
		t.Errorf("%q, and again %q", first, second)
	}
}
