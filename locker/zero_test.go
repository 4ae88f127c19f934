package locker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/locker"
)

func TestZeroMutexGivesAnErrorAndDoesNotPanic(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, *locker.Lock) error { return nil }
	zero := &locker.Mutex{}
	for what, err := range map[string]error{
		"Lock":    func() error { _, err := zero.Lock(t.Context()); return err }(),
		"TryLock": func() error { _, err := zero.With(locker.Options{}).TryLock(t.Context()); return err }(),
		"Do":      zero.Do(t.Context(), nothing),
		"TryDo":   zero.TryDo(t.Context(), nothing),
	} {
		var argument *holdfast.ArgumentError
		if !errors.As(err, &argument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if zero.Name() != "" {
		t.Errorf("name %q", zero.Name())
	}
}
