package queue_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
)

func TestLimitsOfSemaphores(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := holdtest.Start(t, srv)
		const most = layout.MaxPermits
		for limit, ok := range map[int]bool{-1: false, 0: false, 1: true, most: true, most + 1: false} {
			if err := queue.NewSemaphore(p.Host, "x", limit).All().Err(); (err == nil) != ok {
				t.Errorf("limit %d: %v", limit, err)
			}
		}
		if err := queue.NewSemaphore(p.Host, "a//b", 0).All().Err(); !errors.As(err, new(*holdfast.NameError)) {
			t.Errorf("of a bad name and a bad limit: %v, want the name first", err)
		}
	})
}
