package main

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/locker"
)

// watches measures how soon a program that watches a lock hears of its release.
func watches() []subject {
	s := subject{
		name:     "watch",
		what:     "Unlock until admin's Events has told it; floor: Delete until a bare watch has",
		holdfast: watchUnlock,
		floor:    watchDelete,
	}
	busy := s
	busy.name, busy.writers = s.name+"/writers=4", 4
	busy.what += " beside 4 writers"
	return []subject{s, busy}
}

func watchUnlock(e *env) (op, error) {
	sessions, err := e.holdfastSessions(1)
	if err != nil {
		return nil, err
	}
	watcher, err := e.client(1)
	if err != nil {
		return nil, err
	}
	acquired, released := make(chan struct{}), make(chan struct{})
	e.spawn(func() error {
		for ev, err := range admin.New(watcher, admin.Options{}).Events(e.ctx, holdfast.KindLock, e.name) {
			switch {
			case e.ctx.Err() != nil:
				return nil
			case err != nil:
				return err
			case ev.What == admin.Acquired:
				err = e.send(acquired)
			case ev.What == audit.Released:
				err = e.send(released)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	mu := locker.NewMutex(sessions[0], e.name)
	return func(t timer) error {
		t.StopTimer()
		lk, err := mu.Lock(e.ctx)
		if err == nil {
			err = e.receive(acquired)
		}
		t.StartTimer()
		if err == nil {
			err = lk.Unlock(e.ctx)
		}
		if err != nil {
			return err
		}
		return e.receive(released)
	}, nil
}

func watchDelete(e *env) (op, error) {
	cli, err := e.client(0)
	if err != nil {
		return nil, err
	}
	watcher, err := e.client(1)
	if err != nil {
		return nil, err
	}
	deleted, created := make(chan struct{}), make(chan struct{})
	e.spawn(func() error {
		for resp := range watcher.Watch(e.ctx, e.name, clientv3.WithCreatedNotify(), clientv3.WithFilterPut()) {
			to := deleted
			if resp.Created {
				to = created
			}
			if err := e.send(to); err != nil {
				return nil // the side has ended
			}
		}
		return nil
	})
	if err := e.receive(created); err != nil {
		return nil, err
	}
	return func(t timer) error {
		if err := putUntimed(e, cli, t); err != nil {
			return err
		}
		if _, err := cli.Delete(e.ctx, e.name); err != nil {
			return err
		}
		return e.receive(deleted)
	}, nil
}
