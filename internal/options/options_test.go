package options_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/options"
)

type opts struct {
	Owner  string
	Strict bool
	Retry  backoff.Policy
	Tell   func()
}

func TestWhatIsSetIsAddedAndTheRestStays(t *testing.T) {
	told := 0
	base := opts{Owner: "a", Strict: true, Retry: backoff.Policy{Max: time.Second}, Tell: func() { told++ }}
	got := options.Over(base, opts{Owner: "b", Retry: backoff.Policy{Initial: time.Millisecond}})
	if got.Tell(); got.Owner != "b" || !got.Strict || told != 1 ||
		got.Retry.Max != time.Second || got.Retry.Initial != time.Millisecond {
		t.Errorf("%+v", got)
	}
	if base.Owner != "a" || base.Retry.Initial != 0 {
		t.Errorf("the base has changed: %+v", base)
	}
}
