package main

import clientv3 "go.etcd.io/etcd/client/v3"

// floors measures bare etcd requests, the lower bound for everything built on them.
func floors() []subject {
	return []subject{
		{name: "floor/put", what: "Put: one commit", floor: put},
		{name: "floor/delete", what: "Delete: one commit", floor: remove},
		{name: "floor/get", what: "Get: one linearizable read", floor: get},
		{name: "floor/delete+get", what: "one commit and one linearizable read", floor: deleteAndGet},
	}
}

func put(e *env) (op, error) {
	cli, err := e.client(0)
	return func(timer) error {
		_, err := cli.Put(e.ctx, e.name, "")
		return err
	}, err
}

func get(e *env) (op, error) {
	cli, err := e.client(0)
	return func(timer) error {
		_, err := cli.Get(e.ctx, e.name)
		return err
	}, err
}

func remove(e *env) (op, error) {
	cli, err := e.client(0)
	return func(t timer) error {
		if err := putUntimed(e, cli, t); err != nil {
			return err
		}
		_, err := cli.Delete(e.ctx, e.name)
		return err
	}, err
}

// deleteAndGet is the minimum for a release to a waiter: a commit deletes the holder's entry, and the next holder
// verifies that with a linearizable read. Here one client does both, so no event has to reach another client.
func deleteAndGet(e *env) (op, error) {
	cli, err := e.client(0)
	return func(t timer) error {
		if err := putUntimed(e, cli, t); err != nil {
			return err
		}
		if _, err := cli.Delete(e.ctx, e.name); err != nil {
			return err
		}
		_, err := cli.Get(e.ctx, e.name)
		return err
	}, err
}

// putUntimed creates the key to delete, which is not timed.
func putUntimed(e *env, cli *clientv3.Client, t timer) error {
	t.StopTimer()
	defer t.StartTimer()
	_, err := cli.Put(e.ctx, e.name, "")
	return err
}
