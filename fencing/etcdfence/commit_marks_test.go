package etcdfence_test

import (
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
)

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
				m, err := etcdfence.NewMarks(kv, etcdfence.MarksOptions{})
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
