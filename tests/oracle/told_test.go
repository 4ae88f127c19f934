package oracle

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/layout"
)

// notice is the value of an entry with a notice of an administrator.
var notice = valueOf(layout.Value{Identity: layout.Identity{Owner: "a1"}, Notice: layout.Notice{
	By: "ops", Reason: "a test", At: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)}})

func TestHolderIsToldBeforeOrSoonAfterItsEntryIsGone(t *testing.T) {
	const told = 5000 // when the entry is deleted, in ms
	fault := func(from, to int) []Fault {
		return []Fault{{Process: "a", From: time.Duration(from) * time.Millisecond, To: time.Duration(to) * time.Millisecond}}
	}
	for name, c := range map[string]struct {
		cause   Cause
		last    int // the last Check that returned nil
		faults  []Fault
		suspend int // a Check that returned a suspension
		want    string
	}{
		"before a release":              {cause: ByRequest, last: told - 1},
		"after a release":               {cause: ByRequest, last: told + 1, want: "a request of its session"},
		"before the lease ends":         {cause: ByLease, last: told - 1},
		"after the lease ended":         {cause: ByLease, last: told + 1, want: "its lease expired"},
		"also in a fault":               {cause: ByLease, last: told + 1, faults: fault(0, 9000), want: "its lease expired"},
		"suspended after the lease":     {cause: ByLease, last: told - 1, suspend: told + 1, want: "only a suspension"},
		"suspended before":              {cause: ByLease, last: told - 100, suspend: told - 1},
		"soon after a deletion by hand": {cause: ByDeletion, last: told + 7000},
		"late after a deletion by hand": {cause: ByDeletion, last: told + 7100, want: "deleted by hand"},
		"late, while it was cut off":    {cause: ByDeletion, last: told + 7100, faults: fault(told, told+1000)},
		"late after a fault":            {cause: ByDeletion, last: told + 8200, faults: fault(told, told+999), want: "hand"},
		"late after a revocation":       {cause: ByRevocation, last: told + 3100, want: "revoked by hand"},
		"late after a deposed leader":   {cause: ByDeposed, last: told + 3100, want: "another member than the leader"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			s.Faults = c.faults
			a := s.at(1000).queue("a1", writes)
			h := s.grant(a)
			s.at(told).delete(a, c.cause)
			s.at(c.last).until(h)
			h.Suspended = s.at(c.suspend).now
			s.check(t, c.want)
		})
	}
}

func TestHolderIsToldOfANotice(t *testing.T) {
	for name, c := range map[string]struct {
		last, faultUntil int
		want             string
	}{
		"soon":             {last: 5000 + 3000},
		"late":             {last: 5000 + 7100, want: "had asked it to let go"},
		"while cut off":    {last: 5000 + 7100, faultUntil: 6000},
		"after it was not": {last: 6000 + 7100, faultUntil: 6000, want: "had asked it to let go"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			a := s.at(1000).queue("a1", writes)
			h := s.grant(a)
			s.at(5000).write(a, notice, leaseOf("a"))
			s.Faults = []Fault{{Process: "a", From: s.at(4000).now, To: s.at(c.faultUntil).now}}
			s.at(c.last).release(a, h)
			s.check(t, c.want)
		})
	}
}

func TestRemovedHolderIsToldBeforeItsEntryIsGone(t *testing.T) {
	const gone = 10_000
	for name, c := range map[string]struct {
		noticeAt, last int
		fault          [2]int
		slow           bool
		want           string
	}{
		"told before":             {noticeAt: gone - 6500, last: gone - 1},
		"told after":              {noticeAt: gone - 6500, last: gone + 1, want: "removed by an administrator"},
		"had less than 6 s":       {noticeAt: gone - 5900, last: gone + 1},
		"was cut off before":      {noticeAt: gone - 6900, last: gone + 1, fault: [2]int{gone - 7000, gone - 5500}},
		"was cut off after":       {noticeAt: gone - 6500, last: gone + 1, fault: [2]int{gone, gone + 9}, want: "removed"},
		"its connection is slow":  {noticeAt: gone - 6500, last: gone + 1, slow: true},
		"slow, and has long been": {noticeAt: gone - 500, last: gone + 6600, slow: true, want: "had asked it to let go"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			s.Fast = !c.slow
			s.Faults = []Fault{{Process: "a", From: s.at(c.fault[0]).now, To: s.at(c.fault[1]).now}}
			a := s.at(1000).queue("a1", writes)
			h := s.grant(a)
			s.at(c.noticeAt).write(a, notice, 99)
			s.at(gone).remove(a.keys[0], ByLease)
			s.at(c.last).until(h)
			s.check(t, c.want)
		})
	}
}
