package queue

import (
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

func TestRunIsReadIfItHasOurForm(t *testing.T) {
	t.Parallel()
	value := func(v int, at, slot string) string {
		return fmt.Sprintf(`{"v":%d,"at":%q,"slot":%q,"token":"3"}`, v, at, slot)
	}
	const at = "2026-02-03T04:05:06.007Z"
	for name, c := range map[string]struct {
		value string
		want  bool
	}{
		"ours":                  {value(1, at, "monday"), true},
		"of a later version":    {value(2, at, ""), true},
		"with the longest slot": {value(1, at, strings.Repeat("x", MaxText)), true},
		"with a slot too long":  {value(1, at, strings.Repeat("x", MaxText+1)), false},
		"of no version":         {value(0, at, "monday"), false},
		"of an impossible time": {value(1, "9999-12-31T23:59:59Z", "monday"), false},
		"of no time":            {value(1, "0001-01-01T00:00:00Z", "monday"), false},
		"no JSON":               {"monday", false},
		"far too long":          {value(1, at, "monday") + strings.Repeat(" ", maxValue), false},
	} {
		if run, ok := RunIn(&mvccpb.KeyValue{Value: []byte(c.value)}); ok != c.want || run.Known() != c.want {
			t.Errorf("%s: %v, %+v", name, ok, run)
		}
	}
}
