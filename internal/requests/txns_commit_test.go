package requests_test

import (
	"context"
	"errors"
	"fmt"
	"github.com/holdfast-go/holdfast/internal/requests"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

func newCommitter(p *kit.Process) *requests.Committer {
	return &requests.Committer{Sender: p.Host.Sender, Go: p.Host.Go}
}

// put commits a Txn that puts key, and sends the reply to the channel.
func put(t *testing.T, c *requests.Committer, queue, key string) <-chan requests.Reply {
	done := make(chan requests.Reply, 1)
	go func() {
		r, err := c.Commit(t.Context(), requests.Txn{About: queue, Then: []clientv3.Op{clientv3.OpPut(key, "")}})
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	synctest.Wait()
	return done
}

// busy returns a committer with as many requests in flight as make the next Txns wait for a batch.
func busy(t *testing.T, p *kit.Process) *requests.Committer {
	t.Helper()
	c := newCommitter(p)
	for i := range requests.MaxInFlight {
		q := fmt.Sprint("/busy", i, "/")
		put(t, c, q, q+"e")
	}
	return c
}

func TestTxnsAboutOneQueueAreNeverInOneBatch(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		c := busy(t, kit.Start(t, srv))
		first, other, second := put(t, c, "/q/", "/q/1"), put(t, c, "/r/", "/r/1"), put(t, c, "/q/", "/q/2")
		revision, ofOther, ofSecond := (<-first).Header.Revision, (<-other).Header.Revision, (<-second).Header.Revision
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
		p := kit.Start(t, srv)
		p.Link.Delay(roundTrip / 2)
		c := newCommitter(p)
		began := time.Now()
		var all []<-chan requests.Reply
		for i := range requests.MaxInFlight + 3 {
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
		p := kit.Start(t, srv)
		c := busy(t, p)
		p.Link.Plan(func(etcdfake.Call) etcdfake.Fate { return etcdfake.Fate{LoseReply: true} })
		r, err := c.Commit(t.Context(), requests.Txn{About: "/q/", Then: []clientv3.Op{clientv3.OpPut("/q/1", "")}})
		if err == nil || !r.Unanswered {
			t.Errorf("a batch whose reply was lost: %+v, %v, want it unanswered", r, err)
		}
	})
}

// Its copies would stand in the line of callers that wait.
func TestBatchIsSentAgainWhileACallerWaitsForIt(t *testing.T) {
	const patience = 100 * time.Millisecond
	for name, c := range map[string]struct{ waits, again bool }{
		"all callers have given up": {false, false}, "one caller waits": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := kit.Start(t, srv)
				commits := busy(t, p)
				p.PlanAll("enqueue", etcdfake.Fate{LoseRequest: true, Silent: true})
				commit := func(ctx context.Context, queue string) <-chan error {
					done := make(chan error, 1)
					go func() {
						_, err := commits.Commit(ctx, requests.Txn{About: queue, Then: []clientv3.Op{clientv3.OpPut(queue+"1", "")}})
						done <- err
					}()
					return done
				}
				second := kit.Within(t, patience)
				if c.waits {
					second = t.Context()
				}
				gone, other := commit(kit.Within(t, patience/2), "/q/"), commit(second, "/r/")
				if err := <-gone; !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the caller that gave up: %v", err)
				}
				time.Sleep(patience)
				if n := p.Counts()["enqueue"]; n != 1 {
					t.Fatalf("sent %d times before the callers gave up, want one batch", n)
				}
				time.Sleep(time.Minute)
				if n := p.Counts()["enqueue"]; n > 1 != c.again {
					t.Errorf("sent %d times", n)
				}
				p.Plan(nil)
				if err := <-other; c.waits && err != nil {
					t.Errorf("the caller that waited: %v", err)
				}
				synctest.Wait()
				if n := commits.InFlight(); n != 0 {
					t.Errorf("%d requests are in flight", n)
				}
			})
		})
	}
}

func TestTxnThatIsAloneInItsBatchIsSentAfterAMillisecond(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		p.Link.Delay(kit.LockDelay)
		c := busy(t, p)
		p.Link.Delay(kit.OneWay)
		began := time.Now()
		<-put(t, c, "/q/", "/q/1")
		if took := time.Since(began); took != requests.MaxWait+2*kit.OneWay {
			t.Errorf("answered after %v, want a round trip after %v", took, requests.MaxWait)
		}
		time.Sleep(2 * kit.LockDelay)
	})
}

// An idle session commits each Txn on the goroutine of its caller.
func TestTxnsThatNeedNoBatchStartNoGoroutine(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		started := 0
		c := &requests.Committer{Sender: p.Host.Sender, Go: func(f func(ctx context.Context)) bool {
			started++
			return p.Host.Go(f)
		}}
		for i := range requests.MaxInFlight {
			<-put(t, c, "/q/", fmt.Sprint("/q/", i))
		}
		c.FlushOverdue() // the timer of a batch that was sent already
		if started != 0 {
			t.Errorf("%d goroutines were started, and there was no batch to send", started)
		}
	})
}

// The timer of a batch may fire when that was sent already. Then nothing is in flight because of it.
func TestTimerOfABatchThatWasSentDoesNothing(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		c := newCommitter(kit.Start(t, srv))
		c.FlushOverdue()
		if c.InFlight() != 0 {
			t.Errorf("%d requests in flight, and none was sent", c.InFlight())
		}
	})
}

// Etcd may have carried out a batch before it says that the store is full.
func TestTxnsOfARefusedBatchHaveTheReplyToWhatWasSentAlone(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		for refusal, fail := range map[error]bool{
			rpctypes.ErrPermissionDenied: false, // for one of them only
			rpctypes.ErrNoSpace:          true,  // those that put
		} {
			srv.Put("/old", "")
			c := busy(t, p)
			p.KV.Refuse(func(ops []clientv3.Op) error {
				if len(ops) > 1 || fail && ops[0].IsPut() {
					return refusal
				}
				return nil
			})
			type outcome struct {
				requests.Reply
				err error
			}
			commit := func(queue string, op clientv3.Op) <-chan outcome {
				done := make(chan outcome, 1)
				go func() {
					r, err := c.Commit(t.Context(), requests.Txn{About: queue, Then: []clientv3.Op{op}})
					done <- outcome{r, err}
				}()
				return done
			}
			putting, deleting := commit("/q/", clientv3.OpPut("/q/1", "")), commit("/r/", clientv3.OpDelete("/old"))
			del := <-deleting
			if del.err != nil || !del.Succeeded || del.Header == nil || len(srv.Keys("/old")) > 0 {
				t.Errorf("%v: the reply to the deletion is %+v, %v", refusal, del.Reply, del.err)
			}
			if del.Unanswered != fail {
				t.Errorf("%v: an earlier copy of the deletion may have been carried out: %v, want %v", refusal, del.Unanswered,
					fail)
			}
			if p := <-putting; fail && !errors.Is(p.err, refusal) || !fail && (p.err != nil || !p.Succeeded || p.Header == nil) {
				t.Errorf("%v: the reply to the put is %+v, %v", refusal, p.Reply, p.err)
			}
			p.KV.Refuse(nil)
		}
	})
}

// Only what etcd has refused is sent again alone.
func TestDeletionInAnUnansweredBatchIsNotSentAgain(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		p := kit.Start(t, srv)
		c := busy(t, p)
		batches, alone := 0, 0
		p.Link.Plan(func(call etcdfake.Call) etcdfake.Fate {
			switch r, ok := call.Request.(*pb.TxnRequest); {
			case !ok:
				return etcdfake.Fate{}
			case r.Success[0].GetRequestTxn() == nil:
				alone++
			default:
				batches++
			}
			return etcdfake.Fate{LoseReply: true}
		})
		r, err := c.Commit(t.Context(), requests.Txn{About: "/q/", Then: []clientv3.Op{clientv3.OpDelete("/q/1")}})
		if err == nil || !r.Unanswered || alone != 0 || batches == 0 {
			t.Errorf("%+v, %v; it was sent alone %d times", r, err, alone)
		}
	})
}
