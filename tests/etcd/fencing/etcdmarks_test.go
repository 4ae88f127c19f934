package fencing_test

import (
	"fmt"
	"strconv"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/fencing/fencetest"
)

// Replicas share nothing but etcd, whose history shows what landed.
func TestNoStaleCommitLandsAmongManyReplicas(t *testing.T) {
	srv := etcdtest.Start(t)
	var replicas []*etcdfence.Marks
	for range 2 {
		m, err := etcdfence.NewMarks(srv.Client(t), etcdfence.MarksOptions{})
		if err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, m)
	}
	landed := fencetest.Race(t, 25, func(client int, token int64) error {
		_, err := replicas[client%2].Commit(t.Context(), "r", claim(token), clientv3.OpPut("k", fmt.Sprint(token)))
		return err
	})
	history, last := srv.History(t, "k"), 0
	for _, ev := range history {
		token, err := strconv.Atoi(string(ev.Kv.Value))
		if err != nil || token < last {
			t.Fatalf("%s landed after %d", ev.Kv.Value, last)
		}
		last = token
	}
	if len(history) != landed {
		t.Errorf("%d landed, %d are in etcd's history", landed, len(history))
	}
}
