package fencetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/fencing"
)

// Race has 16 clients write at once, so many times each, for a test that judges by itself what has landed. Every
// fourth client has a new token each time, the others the newest one or one of the two before. A write returns nil, or
// an error that Is fencing.ErrStale or fencing.ErrNotDone; any other error fails the test, as it does if no write
// landed or none was refused. Race returns how many landed.
func Race(t *testing.T, times int, write func(client int, token int64) error) (landed int) {
	t.Helper()
	r := race(16, times, write)
	if err := r.err(); err != nil {
		t.Error(err)
	}
	return r.landed
}

// result is what has become of the writes of a race.
type result struct {
	mu      sync.Mutex // protects the following fields
	newest  int64      // token
	landed  int
	refused int
	failed  []error
}

func race(clients, times int, write func(client int, token int64) error) *result {
	r := &result{newest: 1}
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for range times {
				r.add(write(client, r.token(client)))
			}
		})
	}
	all.Wait()
	return r
}

func (r *result) token(client int) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if client%4 == 0 {
		r.newest++
		return r.newest
	}
	return max(1, r.newest-rand.Int64N(3))
}

func (r *result) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.landed++
	case errors.Is(err, fencing.ErrStale):
		r.refused++
	case !errors.Is(err, fencing.ErrNotDone):
		r.failed = append(r.failed, err)
	}
}

func (r *result) err() error {
	err := errors.Join(r.failed...)
	if r.landed == 0 || r.refused == 0 {
		err = errors.Join(fmt.Errorf("%d writes landed, %d were refused as stale: there should be some of both",
			r.landed, r.refused), err)
	}
	return err
}
