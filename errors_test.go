package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestErrorsNameTheLockTheLeaseAndTheCause(t *testing.T) {
	lost := &holdfast.LostError{
		Kind: holdfast.KindLock, Name: "billing/job-7", Token: 42, Lease: 0x694d81, Cause: holdfast.CauseExpired,
		Since: 13500 * time.Millisecond, Err: errors.New("connection refused"),
	}
	for _, want := range []string{
		`"billing/job-7"`, "42", "694d81", "no renewal was confirmed", "13.5s", "connection refused", "acquire again",
	} {
		if !strings.Contains(lost.Error(), want) {
			t.Errorf("%q lacks %q", lost.Error(), want)
		}
	}
	evil := &holdfast.NameError{Kind: "lock", Name: "a\nb" + strings.Repeat("x", 1000), Reason: "is longer than 512 bytes"}
	if s := evil.Error(); strings.Contains(s, "\n") || len(s) > 300 {
		t.Errorf("a name is data, not layout: %q", s)
	}
}

func TestALossByAnAdministratorSaysWhoAskedAndWhy(t *testing.T) {
	kick := &holdfast.KickError{By: "ops\n", Reason: "deploy \x1b[2J of " + strings.Repeat("x", 10)}
	for _, cause := range []holdfast.Cause{holdfast.CauseKicked, holdfast.CauseRemoved} {
		err := error(&holdfast.LostError{Kind: holdfast.KindLock, Name: "x", Cause: cause, Err: kick})
		for _, want := range []string{`"ops\n"`, `deploy \x1b[2J`, "administrator", "release it"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q lacks %q", err, want)
			}
		}
		var found *holdfast.KickError
		if !errors.As(err, &found) || found != kick || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%q, %v", err, found)
		}
	}
}

func TestEveryLossIsErrLostAndOnlyACloseIsErrClosed(t *testing.T) {
	for c := holdfast.CauseExpired; c <= holdfast.CauseRemoved; c++ {
		err := error(&holdfast.LostError{Cause: c, Err: context.DeadlineExceeded})
		if !errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrSuspended) ||
			!errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, holdfast.ErrClosed) != (c == holdfast.CauseClosed) {
			t.Errorf("%v: %v", c, err)
		}
		if strings.Contains(err.Error(), "Cause(") {
			t.Errorf("cause %d has no text: %v", c, err)
		}
	}
}
