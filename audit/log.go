package audit

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

type logAuditor struct{ log *slog.Logger }

// Log returns an auditor that writes to l: grants, releases, what is detached and attached, and losses by Session.Close
// at Debug, everything else at Warn. A nil l is slog.Default() at the time of the record.
func Log(l *slog.Logger) Auditor { return logAuditor{l} }

func (a logAuditor) Audit(ctx context.Context, r Record) {
	level := slog.LevelWarn
	if slices.Contains([]Event{Granted, Released, Detached, Attached}, r.Event) || r.closed() {
		level = slog.LevelDebug
	}
	log := a.log
	if log == nil {
		log = slog.Default()
	}
	if !log.Enabled(ctx, level) {
		return
	}
	log.LogAttrs(ctx, level, "holdfast: "+string(r.Event), r.fields()...) // the logger adds the time
}

// closed reports whether the program has ended the hold by Session.Close. Such a loss is no surprise.
func (r Record) closed() bool {
	var lost *holdfast.LostError
	return r.Event == Lost && errors.As(r.Err, &lost) && lost.Cause == holdfast.CauseClosed
}

// LogValue returns the set fields.
func (r Record) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("event", string(r.Event)), slog.Time("at", r.At)}
	return slog.GroupValue(append(attrs, r.fields()...)...)
}

// fields returns the set fields, except Event and At, the most important first.
func (r Record) fields() []slog.Attr {
	attrs := make([]slog.Attr, 0, 14)
	text := func(key, val string) {
		if val != "" {
			attrs = append(attrs, slog.String(key, val))
		}
	}
	// Tokens are text: JSON readers round numbers above 2⁵³.
	token := func(key string, val holdfast.Token) {
		if val != 0 {
			text(key, val.String())
		}
	}
	text("kind", string(r.Kind))
	text("name", r.Name)
	text("resource", r.Resource)
	token("token", r.Token)
	token("mark", r.Mark)
	err := r.Err
	var lost *holdfast.LostError
	if r.Event == Lost && errors.As(err, &lost) {
		// The text of the error would repeat the other fields.
		text("cause", lost.Cause.String())
		if lost.Since != 0 {
			attrs = append(attrs, slog.Duration("since_last_renewal", lost.Since))
		}
		err = lost.Err
	}
	if err != nil {
		text("error", err.Error())
	}
	text("by", r.By)
	text("detail", r.Detail)
	if r.Held != 0 {
		attrs = append(attrs, slog.Duration("held", r.Held))
	}
	if r.TakenFor != 0 {
		attrs = append(attrs, slog.Duration("taken_for", r.TakenFor))
	}
	if r.Lease != 0 {
		text("lease", names.Lease(r.Lease))
	}
	text("key", r.Key)
	if r.Event != Lost { // this process
		text("holder", r.Holder)
	}
	return attrs
}
