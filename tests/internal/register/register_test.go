package register

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// at sets when an operation was called and had returned, in seconds.
func at(from, to time.Duration, op Op) Op {
	op.Call, op.Return = from*time.Second, to*time.Second
	return op
}

func TestHistories(t *testing.T) {
	older, newer := Op{Token: 5, Value: "a"}, Op{Token: 6, Value: "b"}
	refused := Op{Token: 5, Value: "c", Refused: true}
	byMark := refused
	byMark.Mark = true
	shared := Op{Value: "r"}
	read := func(value string) Op { return Op{Read: true, Value: value} }
	for name, c := range map[string]struct {
		history []Op
		wrong   bool
	}{
		"in order":                       {history: []Op{at(1, 2, older), at(3, 4, newer)}},
		"a stale write":                  {history: []Op{at(1, 2, newer), at(3, 4, older)}, wrong: true},
		"at the same time":               {history: []Op{at(1, 4, newer), at(2, 3, older)}},
		"a refused write":                {history: []Op{at(1, 2, newer), at(3, 4, refused)}},
		"refused without a larger token": {history: []Op{at(1, 2, older), at(3, 4, byMark)}, wrong: true},
		"refused before a larger token":  {history: []Op{at(1, 2, byMark), at(3, 4, newer)}, wrong: true},
		"refused beside a larger token":  {history: []Op{at(1, 3, byMark), at(2, 4, newer)}},
		"a read of a refused write": {
			history: []Op{at(1, 2, refused), at(3, 4, older), at(5, 6, read("c"))}, wrong: true,
		},
		"a read of what was replaced": {
			history: []Op{at(1, 2, older), at(3, 4, newer), at(5, 6, read("a"))}, wrong: true,
		},
		"a read beside the replacement": {history: []Op{at(1, 2, older), at(3, 6, newer), at(4, 5, read("a"))}},
		"a read that goes back": {
			history: []Op{at(1, 2, older), at(3, 8, newer), at(4, 5, read("b")), at(6, 7, read("a"))}, wrong: true,
		},
		"a first read of an earlier time": {history: []Op{at(1, 2, read("z")), at(3, 4, older)}},
		"a reader's write":                {history: []Op{at(1, 2, newer), at(3, 4, shared), at(5, 6, read("r"))}},
		"a stale write after a reader's": {
			history: []Op{at(1, 2, newer), at(3, 4, shared), at(5, 6, older)}, wrong: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Check(c.history, time.Minute); (err != nil) != c.wrong {
				t.Error(err)
			}
		})
	}
}

// Of forty writes at one time the search tries all orders, since one read has what no write has.
func TestUnknownIsAnError(t *testing.T) {
	var history []Op
	for i := range 40 {
		history = append(history, at(1, 2, Op{Value: fmt.Sprint(i)}))
	}
	history = append(history, at(3, 4, Op{Read: true, Value: "nobody's"}))
	if err := Check(history, time.Millisecond); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Error(err)
	}
}
