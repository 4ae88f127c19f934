package etcdfake_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
)

func TestBubbleHasVirtualTimeAndClosesTheServerLast(t *testing.T) {
	var srv *etcdfake.Server
	etcdfake.Test(t, func(t *testing.T, s *etcdfake.Server) {
		srv = s
		cli, virtual := srv.Client(t), time.Now()
		time.Sleep(time.Hour)
		if d := time.Since(virtual); d != time.Hour {
			t.Errorf("slept for %v", d)
		}
		t.Cleanup(func() {
			if _, err := cli.Put(context.Background(), "k", ""); err != nil {
				t.Errorf("the server was closed before a cleanup: %v", err)
			}
		})
	})
	if len(srv.Keys("k")) != 1 {
		t.Error("the cleanup did not run")
	}
}
