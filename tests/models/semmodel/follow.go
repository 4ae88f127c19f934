package semmodel

import "github.com/holdfast-go/holdfast/tests/models/modeltrace"

// Follow compares the steps that processes say of their permits with the model.
func Follow(h *modeltrace.History) modeltrace.Report {
	return modeltrace.Report{Counts: make(map[string]int)}
}
