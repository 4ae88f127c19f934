package audit

import (
	"context"
	"log/slog"
	"strconv"
)

type logAuditor struct{ log *slog.Logger }

// Log returns an auditor that writes to l, with one attribute for each field that
// is set: grants and releases at Debug, everything else at Warn. A nil l is
// slog.Default() at the time of the record.
func Log(l *slog.Logger) Auditor { return logAuditor{l} }

func (a logAuditor) Audit(ctx context.Context, r Record) {
	level := slog.LevelWarn
	if r.Event == Granted || r.Event == Released {
		level = slog.LevelDebug
	}
	log := a.log
	if log == nil {
		log = slog.Default()
	}
	if !log.Enabled(ctx, level) {
		return
	}
	log.LogAttrs(ctx, level, "holdfast: "+string(r.Event), r.attrs()...)
}

// LogValue returns the fields that are set.
func (r Record) LogValue() slog.Value { return slog.GroupValue(r.attrs()...) }

func (r Record) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 13) // the fields of Record
	attrs = append(attrs, slog.String("event", string(r.Event)), slog.Time("at", r.At))
	text := func(key, val string) {
		if val != "" {
			attrs = append(attrs, slog.String(key, val))
		}
	}
	// Tokens are text: JSON readers round numbers above 2⁵³.
	token := func(key string, val int64) {
		if val != 0 {
			text(key, strconv.FormatInt(val, 10))
		}
	}
	text("kind", r.Kind)
	text("name", r.Name)
	text("key", r.Key)
	if r.Lease != 0 {
		text("lease", r.Lease.String())
	}
	token("token", r.Token)
	text("holder", r.Holder)
	text("resource", r.Resource)
	token("mark", r.Mark)
	if r.Held != 0 {
		attrs = append(attrs, slog.Duration("held", r.Held))
	}
	if r.Err != nil {
		text("error", r.Err.Error())
	}
	text("detail", r.Detail)
	return attrs
}
