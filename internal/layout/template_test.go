package layout_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/layout"
)

func TestTemplateMakesWhatEncodeWrites(t *testing.T) {
	start := time.Date(2026, 11, 24, 9, 46, 58, 0, time.FixedZone("", 3600))
	for _, v := range []layout.Value{
		{},
		{Identity: layout.Identity{Owner: `a "queued_at":"1970-01-01T00:00:00Z" <b>`, Host: "h\n", PID: 1}, Mode: "shared"},
		{Identity: layout.Identity{Host: "h"}, Mode: "exclusive", ToldWithin: 7 * time.Second},
	} {
		template := v.Template()
		for _, at := range []time.Duration{0, time.Microsecond, time.Millisecond, 120 * time.Millisecond, time.Hour} {
			v.Queued = start.Add(at)
			if got, want := template.At(v.Queued), v.Encode(); got != want {
				t.Errorf("%s\nwant\n%s", got, want)
			}
		}
	}
}
