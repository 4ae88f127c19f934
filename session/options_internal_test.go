package session

import (
	"testing"
	"time"
)

func TestOptionsAtTheirBounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o  Options
		ok bool
	}{
		"the zero value":             {Options{}, true},
		"the smallest TTL":           {Options{TTL: minTTL}, true},
		"a negative TTL":             {Options{TTL: -time.Second}, false},
		"the largest TTL":            {Options{TTL: maxTTL}, true},
		"above the largest TTL":      {Options{TTL: maxTTL + time.Second}, false},
		"a TTL with a fraction":      {Options{TTL: minTTL + time.Millisecond}, false},
		"a quarter as margin":        {Options{TTL: minTTL, DriftMargin: minTTL / 4}, true},
		"more than a quarter":        {Options{TTL: minTTL, DriftMargin: minTTL/4 + 1}, false},
		"the smallest margin":        {Options{DriftMargin: minDriftMargin}, true},
		"below the smallest margin":  {Options{DriftMargin: minDriftMargin - 1}, false},
		"a negative margin":          {Options{DriftMargin: -1}, false},
		"the smallest lock delay":    {Options{LockDelay: minLockDelay}, true},
		"below the smallest delay":   {Options{LockDelay: minLockDelay - 1}, false},
		"the largest lock delay":     {Options{LockDelay: maxLockDelay}, true},
		"above the largest delay":    {Options{LockDelay: maxLockDelay + 1}, false},
		"no lock delay":              {Options{LockDelay: -1}, true},
		"the smallest close timeout": {Options{CloseTimeout: 1}, true},
		"a negative close timeout":   {Options{CloseTimeout: -1}, false},
	} {
		if _, err := c.o.validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	o, err := Options{}.validate()
	if err != nil || o.TTL != DefaultTTL || o.LockDelay != defaultLockDelay || o.CloseTimeout != defaultCloseTimeout ||
		o.Clock == nil || o.Logger == nil {
		t.Errorf("defaults: %+v, %v", o, err)
	}
}
