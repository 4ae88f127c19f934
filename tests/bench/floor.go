package main

import clientv3 "go.etcd.io/etcd/client/v3"

// floors are etcd's own prices, which nothing built on it can be below.
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
		if err := putAside(e, cli, t); err != nil {
			return err
		}
		_, err := cli.Delete(e.ctx, e.name)
		return err
	}, err
}

// deleteAndGet is the least that a hand-over takes: the holder's entry is
// deleted, which is a commit, and the next one makes sure by a linearizable
// read. Both by one client, with nothing to be told to anybody.
func deleteAndGet(e *env) (op, error) {
	cli, err := e.client(0)
	return func(t timer) error {
		if err := putAside(e, cli, t); err != nil {
			return err
		}
		if _, err := cli.Delete(e.ctx, e.name); err != nil {
			return err
		}
		_, err := cli.Get(e.ctx, e.name)
		return err
	}, err
}

// putAside makes sure that there is something to delete, off the clock.
func putAside(e *env, cli *clientv3.Client, t timer) error {
	t.StopTimer()
	defer t.StartTimer()
	_, err := cli.Put(e.ctx, e.name, "")
	return err
}
