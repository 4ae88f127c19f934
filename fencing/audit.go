package fencing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// Event is what a [Record] is about.
type Event string

// The events. A hold has one Granted, and then one of Released and Lost.
const (
	Granted  Event = "granted"  // a holder acquired
	Released Event = "released" // the holder gave it back
	Lost     Event = "lost"     // the holder lost it; Err is the cause
	Refused  Event = "refused"  // a guard turned a claim away; Err is why
	Bumped   Event = "bumped"   // an operator raised the epoch
	Reset    Event = "reset"    // an operator dropped the mark of a resource
)

// Record is one line of what a post-mortem needs: who held what from when to
// when, and who was turned away. Fields that an event has nothing to say for are
// zero.
type Record struct {
	Event    Event
	At       time.Time     // wall clock of this process
	Kind     string        // "lock" or "election"; "" where only the name is known
	Name     string        // of the lock or election
	Key      string        // the holder's entry in etcd, or the key of the epoch or mark
	Lease    int64         // the holder's lease
	Token    Token         // the holder's, or the one that was presented
	Holder   string        // who, for people: owner, host and process; or the peer that presented the claim
	Resource string        // Refused: what was to be written. Reset: whose mark it was
	Mark     Token         // Refused: the larger token that the guard had seen. Reset: the token dropped
	Held     time.Duration // Released, Lost: since Granted
	Err      error         // Lost, Refused: why. Released, Bumped, Reset: nil, or that the outcome is unknown
	Detail   string        // Bumped: from what to what
}

// Auditor is told of grants, releases, losses, refusals, bumps and resets, by whatever
// was given it: once for each, at the time, on the goroutine where it happened.
// It must not wait for long (a grant waits for it; a loss and a release do not),
// so one that writes to a database hands over to a goroutine of its own. It may
// be called by any number of goroutines at once. A panic in it is recovered and
// logged.
//
// ctx carries values, for tracing; that it has ended must not keep a record from
// being written.
//
// Records of different processes have the clocks of different machines. To put
// them in order use the token: of one name, the larger one was granted later.
type Auditor interface {
	Audit(ctx context.Context, r Record)
}

// AuditFunc is a function that is an [Auditor].
type AuditFunc func(ctx context.Context, r Record)

// Audit calls f.
func (f AuditFunc) Audit(ctx context.Context, r Record) { f(ctx, r) }

// Audit tells a of r, as everything here does: with At set if it is zero, a nil
// a replaced by LogAuditor(nil), the context alive, and a panic recovered.
func Audit(ctx context.Context, a Auditor, r Record) {
	if r.At.IsZero() {
		r.At = time.Now()
	}
	if a == nil {
		a = LogAuditor(nil)
	}
	defer func() {
		if v := recover(); v != nil {
			slog.ErrorContext(ctx, "holdfast: an auditor panicked; its record follows",
				"panic", v, "record", r, "stack", string(debug.Stack()))
		}
	}()
	a.Audit(context.WithoutCancel(ctx), r)
}

// AuditRefusal tells a that a guard has turned c away, if err says that it has:
// it Is [ErrStale], [ErrOtherName], [ErrNoToken] or [ErrBadClaim]. Any other err
// is not the claim's fault, and no record. who is the peer. Within
// [Serve] it does nothing: the caller of that makes the record, and knows the
// peer.
func AuditRefusal(ctx context.Context, a Auditor, resource string, c Claim, who string, err error) {
	if !errors.Is(err, ErrStale) && !errors.Is(err, ErrOtherName) && !errors.Is(err, ErrNoToken) && !errors.Is(err, ErrBadClaim) || recordedOutside(ctx) {
		return
	}
	r := Record{Event: Refused, Name: c.Name, Token: c.Token, Resource: resource, Holder: who, Err: err}
	var below *MarkError
	if errors.As(err, &below) {
		r.Mark = below.Mark
	}
	Audit(ctx, a, r)
}

// AuditReset tells a that the mark of a resource was dropped, for stores that
// have a Reset. err is nil, or why it is not known whether the mark is gone.
func AuditReset(ctx context.Context, a Auditor, resource string, mark Claim, err error) {
	Audit(ctx, a, Record{Event: Reset, Name: mark.Name, Resource: resource, Mark: mark.Token, Holder: self(), Err: err})
}

type logAuditor struct{ log *slog.Logger }

// LogAuditor returns an auditor that writes to l, or if that is nil to
// slog.Default() as it is at the time: grants and releases at Debug, all else at
// Warn, one attribute for each field that is set.
func LogAuditor(l *slog.Logger) Auditor { return logAuditor{l} }

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

// LogValue makes loggers write the fields that are set.
func (r Record) LogValue() slog.Value { return slog.GroupValue(r.attrs()...) }

func (r Record) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs, slog.String("event", string(r.Event)), slog.Time("at", r.At))
	text := func(key, val string) {
		if val != "" {
			attrs = append(attrs, slog.String(key, val))
		}
	}
	text("kind", r.Kind)
	text("name", r.Name)
	text("key", r.Key)
	if r.Lease != 0 {
		text("lease", fmt.Sprintf("%x", r.Lease))
	}
	if r.Token != 0 {
		attrs = append(attrs, slog.Any("token", r.Token))
	}
	text("holder", r.Holder)
	text("resource", r.Resource)
	if r.Mark != 0 {
		attrs = append(attrs, slog.Any("mark", r.Mark))
	}
	if r.Held != 0 {
		attrs = append(attrs, slog.Duration("held", r.Held))
	}
	if r.Err != nil {
		text("error", r.Err.Error())
	}
	text("detail", r.Detail)
	return attrs
}
