package main

import (
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/etcdtest"
)

// stores are the etcds that subjects run on, started when first asked for.
type stores map[int]*etcdtest.Cluster

// dial is how a side gets clients of a cluster of some size; of size 0, of
// none at all.
func (s stores) dial(size int) (func() (*clientv3.Client, error), error) {
	if size == 0 {
		return func() (*clientv3.Client, error) { return aloneClient(etcdfake.New(nil)), nil }, nil
	}
	if s[size] == nil {
		c, err := etcdtest.NewCluster(size, &etcdtest.Options{Fsync: true})
		if err != nil {
			return nil, fmt.Errorf("start an etcd of %d: %w", size, err)
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

// begin sets up one side of a subject on a store; the caller closes the env.
func (s stores) begin(sub subject, size int, sd side) (*env, op, error) {
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

// busy keeps a store as busy as a subject wants it, until the env is closed.
func (s stores) busy(sub subject, size int) (*env, error) {
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

func (s stores) env(sub subject, size int, who string) (*env, error) {
	dial, err := s.dial(size)
	if err != nil {
		return nil, err
	}
	return newEnv(dial, title(size)+"/"+sub.name+"/"+who), nil
}

// title is how a cluster of some size is called.
func title(size int) string {
	if size == 0 {
		return "members=none"
	}
	return fmt.Sprintf("members=%d", size)
}
