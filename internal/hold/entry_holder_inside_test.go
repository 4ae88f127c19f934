package hold

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
)

// A record says who held: of a candidate its value, where that is all that there is.
func TestRecordSaysWhoHeld(t *testing.T) {
	t.Parallel()
	ours := layout.Value{Identity: layout.Identity{Owner: "me", Host: "db-1", PID: 7}, Queued: time.Now()}
	candidate := ours
	candidate.Data = "node-1"
	long := strings.Repeat("é", maxHolder)
	for name, c := range map[string]struct {
		value    string
		verbatim bool
		want     string
	}{
		"a lock":                     {ours.Encode(), false, `owner "me", host "db-1", pid 7`},
		"a candidate":                {candidate.Encode(), false, `node-1 (owner "me", host "db-1", pid 7)`},
		"of etcd's own kind":         {"node-1", true, "node-1"},
		"of etcd's own, in our form": {ours.Encode(), true, ours.Encode()},
		"of another form":            {"node-1", false, "node-1"},
		"a long one":                 {long, true, long[:maxHolder]},
		"cut between two bytes":      {"x" + long, true, "x" + long[:maxHolder-2]},
	} {
		q := queue.New(nil, holdfast.KindElection, "x")
		if c.verbatim {
			q = queue.At(nil, holdfast.KindElection, "x")
		}
		e := heldEntry{grant: &queue.Grant{Queue: q, Value: c.value}}
		if got := e.holder(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
