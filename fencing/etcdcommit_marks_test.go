package fencing_test

import (
	"errors"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// countEvery is how many marks one process creates between two counts, if there is room for 10,000 or more.
const countEvery = 100

func TestMarksAreNotCountedForEachNewResource(t *testing.T) {
	e := newEtcd(t)
	for name, c := range map[string]struct {
		write        func(m *fencing.EtcdMarks, resource string, token int64) error
		ranges, txns int // of each write beside the counts
	}{
		"commit": {func(m *fencing.EtcdMarks, resource string, token int64) error {
			_, err := m.Commit(t.Context(), resource, claim(token), clientv3.OpPut("k", "v"))
			return err
		}, 0, 1},
		"admit": {func(m *fencing.EtcdMarks, resource string, token int64) error {
			return m.Admit(t.Context(), resource, claim(token))
		}, 1, 1},
	} {
		m := e.marks(t, fencing.EtcdMarksOptions{})
		sent, _ := e.rpcs(func() {
			const known = 50
			for token := range known { // these create no mark but the first one
				if err := c.write(m, name, int64(5+token)); err != nil {
					t.Fatal(err)
				}
			}
			for i := range countEvery - 1 {
				if err := c.write(m, fmt.Sprint(name, i), 5); err != nil {
					t.Fatal(err)
				}
			}
			c.ranges, c.txns = c.ranges*(known+countEvery-1)+1, c.txns*(known+countEvery-1)
		})
		if name == "commit" {
			c.txns++ // it finds only in etcd that a mark is to be created
		}
		if sent["Range"] != c.ranges || sent["Txn"] != c.txns {
			t.Errorf("%s, %d new resources: sent %v, want the marks to be counted once", name, countEvery, sent)
		}
		sent, total := e.rpcs(func() {
			if err := c.write(m, name+" and one more", 5); err != nil {
				t.Fatal(err)
			}
		})
		if total != 3 {
			t.Errorf("%s, %d new resources: sent %v for the last one, want the marks to be counted", name, countEvery+1, sent)
		}
	}
	unbounded := e.marks(t, fencing.EtcdMarksOptions{MaxMarks: -1})
	sent, total := e.rpcs(func() {
		if err := write(t.Context(), unbounded, claim(5)); err != nil {
			t.Fatal(err)
		}
	})
	if total != 1 {
		t.Errorf("without a limit: sent %v", sent)
	}
}

// What etcd cannot have sent leaves the outcome open: nothing panics, and nothing is sent again.
func TestMalformedResponseToACommitIsAnUnknownOutcome(t *testing.T) {
	for situation, token := range map[string]int64{"a mark": 7, "no mark": 7, "a larger mark": 5} {
		for _, depth := range []int{0, 1} { // which transaction: the outer one, or the one in its Else
			if situation == "a mark" && depth == 1 {
				continue // that one is not looked into
			}
			for fault, change := range map[string]func([]*pb.ResponseOp) []*pb.ResponseOp{
				"no responses":  func([]*pb.ResponseOp) []*pb.ResponseOp { return nil },
				"too many":      func(r []*pb.ResponseOp) []*pb.ResponseOp { return append(r, r[0]) },
				"empty":         func(r []*pb.ResponseOp) []*pb.ResponseOp { r[len(r)-1] = &pb.ResponseOp{}; return r },
				"of other kind": func(r []*pb.ResponseOp) []*pb.ResponseOp { r[len(r)-1] = put; return r },
			} {
				_, kv := holding(t)
				m, err := fencing.NewEtcdMarks(kv, fencing.EtcdMarksOptions{MaxMarks: -1})
				if err != nil {
					t.Fatal(err)
				}
				if situation != "no mark" {
					if err := write(t.Context(), m, claim(6)); err != nil {
						t.Fatal(err)
					}
				}
				kv.rewrite = func(resp *clientv3.TxnResponse) *clientv3.TxnResponse {
					if depth == 0 {
						resp.Responses = change(resp.Responses)
					} else {
						inner := resp.Responses[0].GetResponseTxn()
						inner.Responses = change(inner.Responses)
					}
					return resp
				}
				before := kv.sent()
				err = write(t.Context(), m, claim(token))
				if !errors.Is(err, holdfast.ErrOutcomeUnknown) || kv.sent() != before+1 {
					t.Errorf("%s, depth %d, %s: %v, sent %d times", situation, depth, fault, err, kv.sent()-before)
				}
			}
		}
	}
}

var put = &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}}
