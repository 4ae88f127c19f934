package main

import "testing"

func TestSubjectsHaveUniqueNamesAndDescriptions(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range subjects() {
		if seen[s.name] || s.what == "" || len(s.sides()) == 0 || len(s.short) > 36 {
			t.Errorf("subject %q", s.name)
		}
		seen[s.name] = true
	}
}
