package inquest

import (
	"slices"
	"testing"
)

func TestRevisionsOfARoundAreEvenlySpaced(t *testing.T) {
	for gap := int64(1); gap < 300; gap++ {
		at := between(10, 10+gap)
		if len(at) > probes || gap > 1 && len(at) == 0 {
			t.Fatalf("between two revisions %d apart: %v", gap, at)
		}
		last, widest := int64(10), int64(0)
		for _, revision := range slices.Concat(at, []int64{10 + gap}) {
			widest, last = max(widest, revision-last), revision
		}
		if widest > gap/2+1 || widest > gap/probes+1 {
			t.Fatalf("between two revisions %d apart: %v leaves %d", gap, at, widest)
		}
	}
}
