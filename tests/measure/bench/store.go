package main

import (
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/etcdtest"
)

// stores maps a size to the cluster of that size, started on first use.
type stores map[int]*etcdtest.Cluster

// dial returns the function that makes clients of the cluster of a size. Clients of size 0 need no cluster.
func (s stores) dial(size int) (func() (*clientv3.Client, error), error) {
	if size == 0 {
		return func() (*clientv3.Client, error) {
			cli, _ := instantClient(etcdfake.New(etcdfake.Options{}))
			return cli, nil
		}, nil
	}
	if s[size] == nil {
		c, err := etcdtest.NewCluster(size, etcdtest.Options{Fsync: true})
		if err != nil {
			return nil, fmt.Errorf("start etcd with %d members: %w", size, err)
		}
		s[size] = c
	}
	return s[size].NewClient, nil
}

func (s stores) close() error {
	var errs []error
	for _, c := range s {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// setUp sets up one side of a subject on a store; the caller closes the env.
func (s stores) setUp(sub subject, size int, sd side) (*env, op, error) {
	e, err := s.env(sub, size, sd.name)
	if err != nil {
		return nil, nil, err
	}
	run, err := sd.setup(e)
	if err != nil {
		e.close()
		return nil, nil, fmt.Errorf("set up %s: %w", e.name, err)
	}
	return e, run, nil
}

// startWriters starts the subject's background writers, which run until the env is closed.
func (s stores) startWriters(sub subject, size int) (*env, error) {
	e, err := s.env(sub, size, "writers")
	if err != nil {
		return nil, err
	}
	if err := e.write(sub.writers); err != nil {
		e.close()
		return nil, fmt.Errorf("set up %s: %w", e.name, err)
	}
	return e, nil
}

func (s stores) env(sub subject, size int, role string) (*env, error) {
	dial, err := s.dial(size)
	if err != nil {
		return nil, err
	}
	return newEnv(dial, title(size)+"/"+sub.name+"/"+role), nil
}

// title names a cluster size in the names of subjects.
func title(size int) string {
	if size == 0 {
		return "members=none"
	}
	return fmt.Sprintf("members=%d", size)
}
