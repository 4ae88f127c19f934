package kubelock

import (
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
)

// The clock jumps, as when the machine has slept, and no timer has fired meanwhile.
func TestTermEndsWhileTheMachineSleeps(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		l, err := New(srv.Client(t), "x", "a", Options{})
		if err != nil {
			t.Fatal(err)
		}
		awake := l.clock
		ler := resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 15}
		if err := l.Create(t.Context(), ler); err != nil {
			t.Fatal(err)
		}
		term := l.Term()
		if err := term.Check(); err != nil {
			t.Fatal(err)
		}
		l.clock = func() time.Duration { return awake() + time.Hour }
		var lost *holdfast.LostError
		if err := term.Check(); !errors.As(err, &lost) || lost.Since < time.Hour {
			t.Errorf("after an hour: %v", err)
		}
	})
}
