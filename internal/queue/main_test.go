package queue

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { leak.Main(m) }

// What follows is for tests that look inside. The others use internal/testkit/holdtest.

var entriesX, permitsX = kit.Entries("x"), kit.Permits("x")

// process is a Process with queues.
type process struct{ *kit.Process }

func start(t *testing.T, srv *etcdfake.Server, change ...func(*session.Options)) *process {
	t.Helper()
	return &process{kit.Start(t, srv, change...)}
}

func startReplaced(t *testing.T, srv *etcdfake.Server) *process {
	t.Helper()
	return &process{kit.StartReplaced(t, srv)}
}

func (p *process) queue(lock string) *Queue { return New(p.Host, holdfast.KindLock, lock) }

func (p *process) readers(lock string) *Queue { return p.queue(lock).Readers() }

func (p *process) permits(limit, weight int) *Queue {
	return NewSemaphore(p.Host, "x", limit).Permits(weight)
}

func mustAcquire(t *testing.T, q *Queue) *Grant {
	t.Helper()
	grants, err := Set{q}.Acquire(kit.Within(t, time.Minute), Request{})
	if err != nil {
		t.Fatal(err)
	}
	return grants[0]
}

// acquireLater acquires on a goroutine that ends with ctx. Without a grant it sends nil.
func acquireLater(ctx context.Context, q *Queue) <-chan *Grant {
	done := make(chan *Grant, 1)
	go func() {
		grants, _ := Set{q}.Acquire(ctx, Request{})
		done <- append(grants, nil)[0]
	}()
	return done
}

func mustHandOff(t *testing.T, g *Grant) {
	t.Helper()
	if g == nil {
		t.Fatal("there is no grant")
	}
	if err := g.HandOff(); err != nil {
		t.Errorf("HandOff: %v", err)
	}
}

func mustClose(t *testing.T, p *process) {
	t.Helper()
	if err := p.Sess.Close(kit.Within(t, time.Minute)); err != nil {
		t.Errorf("Close: %v", err)
	}
}
