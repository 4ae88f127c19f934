package view_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	"github.com/holdfast-go/holdfast/view"
)

func TestMain(m *testing.M) { leak.Main(m) }

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func TestEntrySaysWhatIsKnown(t *testing.T) {
	for want, e := range map[string]view.Entry{
		`owner "worker-a", host "h", pid 12, held since 2026-01-31T12:00:00Z, token 120, lease 694d`: {
			Key: "k", Owner: "worker-a", Host: "h", PID: 12, QueuedAt: noon.Add(-time.Hour), HeldAt: noon,
			Token: 120, Lease: 0x694d,
		},
		`owner "a", released at 2026-01-31T12:00:00Z, its name taken until 2026-01-31T13:00:00Z, token 5, lease 694d`: {
			Key: "k", Owner: "a", QueuedAt: noon, HeldAt: noon, ReleasedAt: noon, TakenUntil: noon.Add(time.Hour),
			Token: 5, Lease: 0x694d,
		},
		`owner "a", detached at 2026-01-31T12:00:00Z until 2026-01-31T13:00:00Z, token 5, lease 694d`: {
			Key: "k", Owner: "a", HeldAt: noon, DetachedAt: noon, DetachedUntil: noon.Add(time.Hour), Token: 5, Lease: 0x694d,
		},
		`host "h", value "10.0.0.1", queued since 2026-01-31T12:00:00Z, lease 1`: {
			Key: "k", Host: "h", Value: "10.0.0.1", QueuedAt: noon, Lease: 1,
		},
		`another client's key "/locks/x/694d", token 7, lease 694d`: {
			Key: "/locks/x/694d", Foreign: true, Token: 7, Lease: 0x694d,
		},
		`key "holdfast/lock/x/@/694d-AAAAAAAAAAAAAAAA", lease 694d`: {
			Key: "holdfast/lock/x/@/694d-AAAAAAAAAAAAAAAA", Lease: 0x694d,
		},
		`owner "a\nlevel=ERROR msg=\"\x1b[31mforged\"", lease 1`: {
			Key: "k", Owner: "a\nlevel=ERROR msg=\"\x1b[31mforged\"", Lease: 1,
		},
		`owner "` + strings.Repeat("o", 128) + `"… (5000 bytes), lease 1`: {
			Key: "k", Owner: strings.Repeat("o", 5000), Lease: 1,
		},
		`another client's key "k", value "` + strings.Repeat("v", 128) + `"… (65536 bytes), lease 1`: {
			Key: "k", Foreign: true, Value: strings.Repeat("v", 64<<10), Lease: 1,
		},
	} {
		if got := e.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestPlaceSaysWhoHoldsAndHowManyAreAhead(t *testing.T) {
	a := view.Entry{Key: "k", Owner: "a", Lease: 1}
	for want, p := range map[string]view.Place{
		"place not known":            {},
		"first in the queue":         {Seen: noon},
		"holder not known; 3 ahead":  {Ahead: 3, Seen: noon},
		`held by owner "a", lease 1`: {Holder: a, Ahead: 1, Seen: noon},
		`taken by owner "b", released at 2026-01-31T12:00:00Z, its name taken until 2026-01-31T12:00:00Z, lease 1`: {
			Holder: view.Entry{Key: "k", Owner: "b", Lease: 1, ReleasedAt: noon, TakenUntil: noon}, Ahead: 1, Seen: noon,
		},
		`detached by owner "b", detached at 2026-01-31T12:00:00Z until 2026-01-31T12:00:00Z, lease 1`: {
			Holder: view.Entry{Key: "k", Owner: "b", Lease: 1, DetachedAt: noon, DetachedUntil: noon}, Ahead: 1, Seen: noon,
		},
		`held by owner "a", lease 1; 2 more ahead`:            {Holder: a, Ahead: 3, Seen: noon},
		`held by owner "a", lease 1; at least 999 more ahead`: {Holder: a, Ahead: view.MaxAhead, Seen: noon},
	} {
		if got := p.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
