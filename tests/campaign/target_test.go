//go:build linux

package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/tests/internal/rounds"
)

func TestPrefixWithKeysOfOthersIsRefusedAndLeftAlone(t *testing.T) {
	srv := etcdtest.Start(t)
	if _, err := srv.Client(t).Put(t.Context(), "theirs/x", "1"); err != nil {
		t.Fatal(err)
	}
	err := target{endpoints: srv.Endpoints(), namespace: "theirs/"}.claim(t.Context())
	if err == nil || !strings.Contains(err.Error(), `1 keys below "theirs/"`) {
		t.Error(err)
	}
	if kvs := srv.Keys(t, ""); len(kvs) != 1 || string(kvs[0].Value) != "1" {
		t.Errorf("it left %v", kvs)
	}
}

// Others write to the same etcd meanwhile.
func TestCampaignOnTheUsersEtcdKeepsToItsPrefix(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	writing, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() {
		for writing.Err() == nil {
			_, _ = srv.Client(t).Put(writing, "theirs", "x")
			pauseFor(writing, 10*time.Millisecond)
		}
	})
	on := target{endpoints: srv.Endpoints(), namespace: "campaign/"}
	s, err := run(t.Context(), options{duration: time.Hour, rounds: 1, seed: 2, workers: 2, foreign: on,
		round: time.Duration(rounds.Of(20, 4)) * time.Second, out: t.ArtifactDir(), progress: t.Output()})
	stop()
	others.Wait()
	if err != nil || len(s.Violations) > 0 || s.Acquisitions == 0 {
		t.Errorf("%v\n%v", err, s)
	}
	for _, kv := range srv.Keys(t, "") {
		if key := string(kv.Key); key != "theirs" && !strings.HasPrefix(key, on.namespace) {
			t.Errorf("it left %s", key)
		}
	}
	if err := on.claim(t.Context()); err != nil {
		t.Error(err)
	}
	if kvs := srv.Keys(t, on.namespace); len(kvs) != 1 || string(kvs[0].Key) != on.namespace+marker {
		t.Errorf("when it is used again, it begins with %v", kvs)
	}
}
