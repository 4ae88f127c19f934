package layout

import (
	"strings"
	"time"
)

// Template makes texts of values that differ in Queued only. Each acquisition needs one, and to encode JSON takes a
// good part of the time that the client spends on a free lock.
type Template struct{ before, after string }

// Template returns the template of values like v.
func (v Value) Template() Template {
	v.Queued = time.UnixMilli(0)
	// A quote within a text is escaped, so this finds the field.
	before, after, _ := strings.Cut(v.Encode(), quoted(v.Queued))
	return Template{before, after}
}

// At returns what Encode does for a value that is queued at that time.
func (t Template) At(queued time.Time) string { return t.before + quoted(queued) + t.after }

func quoted(queued time.Time) string {
	return `"queued_at":"` + Millis(queued).Format(time.RFC3339Nano) + `"`
}
