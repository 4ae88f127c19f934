package explain

import (
	"slices"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/view"
)

// Story is what is known of one queue.
type Story struct {
	Queue    layout.Keyspace
	From, To int64    // the revisions that were read
	All      bool     // nothing was compacted before From, and it was not chosen
	Spells   []*Spell // in order of their create revisions
	LeftOut  int      // older ones, beyond MaxSpells
	Lines    []Line   // of records that belong to none of the Spells

	leftOutUntil int64 // the last end of those
}

// MaxSpells bounds the spells of a Story: the latest are told.
const MaxSpells = 10_000

// Spell is one entry, from its put to its end.
type Spell struct {
	Entry   view.Entry // as it was last seen
	Held    int64      // revision since which no entry was ahead that excludes it, and of a name no claim; 0: never
	Ended   int64      // revision at which it went; 0: it stands
	End     End
	Earlier bool // it held at the first revision: Held may be earlier
	Asked   []NoticeAt
	Moves   []Move
	Lines   []Line // what records say of it
}

// NoticeAt is a notice in an entry, and the revision that put it there.
type NoticeAt struct {
	view.Notice
	Revision int64
}

// Move is what a Detach, or an Attach, has made of an entry.
type Move struct {
	view.Entry
	Revision int64
}

// End is how an entry went.
type End string

// The ends. What was lost after its claim looks like what its session gave up.
const (
	Stands     End = ""
	LetGo      End = "let go"                        // released, or given up; or entry and claim were deleted by hand
	GaveUp     End = "its session gave its lease up" // Close does, and a session that was told that it has lost its lease
	Deleted    End = "deleted by hand"
	LeaseEnded End = "its lease ended"       // it expired, or was revoked, and its holder had not been told
	Rested     End = "MinHold was over"      // it was released before
	Moved      End = "taken away"            // it was on the lease that Remove gave it; perhaps its holder let go before
	RanOut     End = "its ticket ended"      // it was detached: the time was over, or an administrator has kicked it
	Unknown    End = "how is not known"      // that history is compacted, or it is of another client
	Downgraded End = "goes on as a reader's" // the writer's entry of a lock that was downgraded
)

func (s *Story) add(spell *Spell) {
	if len(s.Spells) >= MaxSpells {
		oldest := slices.IndexFunc(s.Spells, func(s *Spell) bool { return s.Ended > 0 })
		if oldest >= 0 {
			s.leftOutUntil = max(s.leftOutUntil, s.Spells[oldest].Ended)
			s.Spells = slices.Delete(s.Spells, oldest, oldest+1)
			s.LeftOut++
		}
	}
	s.Spells = append(s.Spells, spell)
}

// Span is from one revision to another.
type Span struct {
	From, To int64 // To 0: to the present
}

// Free returns when nothing stood in the queue: from the end of one entry to the put of the next one.
func (s *Story) Free() (all []Span) {
	free := Span{From: max(s.From, s.leftOutUntil)}
	for _, spell := range s.Spells {
		if free.From > 0 && spell.Entry.Revision > free.From {
			free.To = spell.Entry.Revision
			all = append(all, free)
		}
		switch {
		case spell.Ended == 0:
			return all
		case spell.Ended > free.From || free.To > 0:
			free = Span{From: max(free.From, spell.Ended)}
		}
	}
	return append(all, Span{From: free.From})
}
