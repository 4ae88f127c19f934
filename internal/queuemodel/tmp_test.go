package queuemodel

import (
	"strings"
	"testing"
)

func TestSets(t *testing.T) {
	for _, s := range sets {
		t.Run(s.name, func(t *testing.T) {
			if wrong := search(t, s); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

func TestBrokenSets(t *testing.T) {
	for _, s := range brokenSets {
		t.Run(s.name, func(t *testing.T) {
			if wrong := search(t, s); !strings.HasPrefix(wrong, s.expect) {
				t.Errorf("found %q, want a violation %q", wrong, s.expect)
			} else {
				t.Log(wrong)
			}
		})
	}
}
