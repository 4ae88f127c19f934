package session_test

import (
	"context"
	"log/slog"
)

// lineHandler passes on each record's message, Info and above.
type lineHandler chan<- string

func (h lineHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

func (h lineHandler) Handle(_ context.Context, r slog.Record) error { h <- r.Message; return nil }

func (h lineHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h lineHandler) WithGroup(string) slog.Handler { return h }
