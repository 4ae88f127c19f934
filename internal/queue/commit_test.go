package queue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// put commits a Txn that puts key, and sends the reply to the channel.
func put(t *testing.T, c *committer, queue, key string) <-chan reply {
	done := make(chan reply, 1)
	go func() {
		r, err := c.commit(t.Context(), txn{queue: queue, then: []clientv3.Op{clientv3.OpPut(key, "")}})
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	synctest.Wait()
	return done
}

func TestTxnsAboutOneQueueAreNeverInOneBatch(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		c := &committer{host: lease.Open(start(t, srv).Sess.Ref())}
		for i := range maxInFlight {
			q := fmt.Sprint("/busy", i, "/")
			put(t, c, q, q+"e")
		}
		first, other, second := put(t, c, "/q/", "/q/1"), put(t, c, "/r/", "/r/1"), put(t, c, "/q/", "/q/2")
		revision, ofOther, ofSecond := (<-first).header.Revision, (<-other).header.Revision, (<-second).header.Revision
		if revision == ofSecond {
			t.Errorf("two entries of one queue were put at revision %d: neither is ahead of the other", revision)
		}
		if revision != ofOther {
			t.Errorf("entries of different queues were put at revisions %d and %d: the test has seen no batch", revision,
				ofOther)
		}
	})
}

// Far from etcd a round trip is long. A Txn must not wait in a batch for that long.
func TestTxnWaitsAMillisecondForABatchAndNoLonger(t *testing.T) {
	const roundTrip = 80 * time.Millisecond
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		p.Link.Delay(roundTrip / 2)
		c := &committer{host: p.Host}
		began := time.Now()
		var all []<-chan reply
		for i := range maxInFlight + 3 {
			q := fmt.Sprint("/", i, "/")
			all = append(all, put(t, c, q, q+"e"))
		}
		for _, done := range all {
			<-done
		}
		if took := time.Since(began); took > roundTrip+time.Millisecond {
			t.Errorf("the last Txn was answered after %v, want a round trip of %v and 1ms", took, roundTrip)
		}
	})
}

// The batch may still be carried out, whatever the reply is when its Txns are sent again.
func TestTxnOfAnUnansweredBatchCountsAsUnanswered(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := start(t, srv)
		c := &committer{host: p.Host}
		for i := range maxInFlight {
			q := fmt.Sprint("/busy", i, "/")
			put(t, c, q, q+"e")
		}
		p.Link.Plan(func(etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{LoseReply: true} })
		r, err := c.commit(t.Context(), txn{queue: "/q/", then: []clientv3.Op{clientv3.OpPut("/q/1", "")}})
		if err == nil || !r.unanswered || r.unsent {
			t.Errorf("a batch whose reply was lost: %+v, %v, want it unanswered", r, err)
		}
	})
}
