package main

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A member that refuses its status to a user runs: nothing is to be started.
func TestMemberThatRefusesItsStatusIsNotTakenForStopped(t *testing.T) {
	for err, refused := range map[error]bool{rpctypes.ErrPermissionDenied: true, context.DeadlineExceeded: false} {
		var said finding
		c := &checker{report: func(f finding) { said = f }}
		c.silent("etcd-0:2379", err)
		if said.Result != "warning" || (said.Advice == asRoot) != refused {
			t.Errorf("%v: %+v", err, said)
		}
	}
}
