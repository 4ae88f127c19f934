package queue

import (
	"testing"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/queuetest"
)

// A writer judges the readers that stood ahead by their session keys. If there were more than it reads, one that it
// has not read may have been revoked.
func TestWriterKnowsThatMoreReadersStoodAheadThanItJudges(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		q := start(t, srv).queue("x")
		for n := 1; n <= maxRemembered+2; n++ {
			kit.JoinReader(t, srv, q.at.Entries)
			if n < maxRemembered {
				continue
			}
			kvs := srv.Keys(q.at.Entries)
			created := int64(0)
			for _, kv := range kvs {
				created = max(created, kv.CreateRevision)
			}
			resp, err := q.shared.get(t.Context(), q.othersAhead(created+1))
			if err != nil {
				t.Fatal(err)
			}
			if len(resp.Kvs) != min(n, maxRemembered+1) {
				t.Errorf("of %d readers ahead %d were read, want one more than %d at most", n, len(resp.Kvs), maxRemembered)
			}
			others := othersAhead{}.with(q, resp.Kvs)
			if unknown := n > maxRemembered; others.unknown != unknown || !unknown && len(others.sessions) != n {
				t.Errorf("of %d readers ahead %d sessions are known, unknown %v", n, len(others.sessions), others.unknown)
			}
		}
	})
}
