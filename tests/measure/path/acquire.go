package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/coverage"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// acquire acquires and releases a lock or a permit. It writes to dir/lock what ran before the call returned, to
// dir/unlock what ran with the release as well, and to dir/depth the frames from the call to its request.
func acquire(kind, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	srv := etcdfake.New(etcdfake.Options{})
	defer srv.Close()
	of := lock
	switch kind {
	case "free", "waiting":
	case "permit", "waiting-permit":
		of = permit
	default:
		return fmt.Errorf("%q is none of free, waiting, permit, waiting-permit", kind)
	}
	link := srv.Link()
	frames := &counter{KVClient: link.KVClient()}
	link.Client().KV = clientv3.NewKVFromKVClient(frames, link.Client())
	sess, err := session.New(ctx, link.Client(), session.Options{})
	if err != nil {
		return err
	}
	take := of(sess)
	// A session does some things only once. The first acquisition does them, and is not counted.
	release, err := take(ctx)
	if err != nil {
		return err
	}
	if err := release(ctx); err != nil {
		return err
	}
	time.Sleep(200 * time.Millisecond) // its watches stand: it does nothing until it renews its lease
	ahead := func() (func() error, error) { return func() error { return nil }, nil }
	if strings.HasPrefix(kind, "waiting") {
		if ahead, err = bare(ctx, srv, of); err != nil {
			return err
		}
	}
	free, err := ahead()
	if err != nil {
		return err
	}
	if err := coverage.WriteMetaDir(filepath.Join(dir, "lock")); err != nil {
		return err
	}
	if err := coverage.WriteMetaDir(filepath.Join(dir, "unlock")); err != nil {
		return err
	}
	return counted(ctx, srv, take, free, frames, dir)
}

// counted acquires, has free let the call hold once it waits, and releases.
func counted(
	ctx context.Context, srv *etcdfake.Server, take taker, free func() error, frames *counter, dir string,
) error {
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	failed := make(chan error, 1)
	frames.on = true
	go func() { // ends with the acquisition, whose error counted returns
		failed <- func() error {
			release, err := take(ctx)
			if err != nil {
				return err
			}
			if err := coverage.WriteCountersDir(filepath.Join(dir, "lock")); err != nil {
				return err
			}
			if err := release(ctx); err != nil {
				return err
			}
			return coverage.WriteCountersDir(filepath.Join(dir, "unlock"))
		}()
	}()
	time.Sleep(300 * time.Millisecond) // a call that waits has its watch
	if err := free(); err != nil {
		return err
	}
	if err := <-failed; err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "depth"), []byte(strconv.Itoa(frames.depth)), 0o600)
}

// bare returns a function that puts what a holder puts, by one Txn of a bare client, so that no session runs while an
// acquisition is counted. That function returns another one, which deletes it.
func bare(
	ctx context.Context, srv *etcdfake.Server, of func(*session.Session) taker,
) (func() (func() error, error), error) {
	cli := srv.Link().Client()
	sess, err := session.New(ctx, cli, session.Options{})
	if err != nil {
		return nil, err
	}
	before := make(map[string]bool)
	for _, kv := range srv.Keys(prefix) {
		before[string(kv.Key)] = true
	}
	if _, err := of(sess)(ctx); err != nil {
		return nil, err
	}
	all, err := cli.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	var puts, deletions []clientv3.Op
	for _, kv := range all.Kvs {
		if !before[string(kv.Key)] {
			puts = append(puts, clientv3.OpPut(string(kv.Key), string(kv.Value)))
			deletions = append(deletions, clientv3.OpDelete(string(kv.Key)))
		}
	}
	if err := sess.Close(ctx); err != nil {
		return nil, err
	}
	return func() (func() error, error) {
		_, err := cli.Txn(ctx).Then(puts...).Commit()
		return func() error {
			_, err := cli.Txn(ctx).Then(deletions...).Commit()
			return err
		}, err
	}, nil
}

const (
	name   = "x"
	prefix = "holdfast/"
)

// taker acquires, and returns the release.
type taker func(context.Context) (func(context.Context) error, error)

func lock(sess *session.Session) taker {
	mu := locker.NewMutex(sess, name)
	return func(ctx context.Context) (func(context.Context) error, error) {
		lk, err := mu.Lock(ctx)
		if err != nil {
			return nil, err
		}
		return lk.Unlock, nil
	}
}

func permit(sess *session.Session) taker {
	sem := locker.NewSemaphore(sess, name, 1)
	return func(ctx context.Context) (func(context.Context) error, error) {
		p, err := sem.Acquire(ctx, 1)
		if err != nil {
			return nil, err
		}
		return p.Release, nil
	}
}

// counter counts the frames of this module at the first Txn, from the call of Lock or Acquire to that of etcd's client.
type counter struct {
	pb.KVClient
	on    bool
	depth int
}

func (c *counter) Txn(ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	if c.on && c.depth == 0 {
		pcs := make([]uintptr, 100)
		frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
		for more := true; more; {
			var f runtime.Frame
			if f, more = frames.Next(); strings.HasPrefix(f.Function, "main.") {
				break
			}
			if strings.HasPrefix(f.Function, strings.TrimSuffix(module, "/")) {
				c.depth++
			}
		}
	}
	return c.KVClient.Txn(ctx, r, opts...)
}
