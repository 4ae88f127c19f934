package explain

import (
	"testing"

	"github.com/holdfast-go/holdfast/view"
)

// What stood in the queue then is not known any more, so that is not called free.
func TestTimeOfWhatIsLeftOutIsNotFree(t *testing.T) {
	s := &Story{From: 1}
	for i := range int64(MaxSpells + 1) { // at revisions 2 to 3, 4 to 5, ...
		s.add(&Spell{Entry: view.Entry{Revision: 2*i + 2}, Ended: 2*i + 3})
	}
	if free := s.Free(); s.LeftOut != 1 || free[0] != (Span{3, 4}) {
		t.Errorf("%d are left out, and it was free at %v, first", s.LeftOut, free[:2])
	}
}
