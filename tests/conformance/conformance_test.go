package conformance_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/etcdtest"
)

var (
	conformanceSeed = flag.Uint64("conformance.seed", 1, "seed of the first run of the conformance suite")
	conformanceRuns = flag.Int("conformance.runs", 2, "number of runs; each uses the next seed and starts its own etcd")
	conformanceOps  = flag.Int("conformance.ops", 500, "operations in each run")
)

// The same operations get the same replies from the fake and from etcd, revisions included. Only the IDs of members and
// leases differ.
func TestFakeRepliesLikeEtcd(t *testing.T) {
	for seed := *conformanceSeed; seed < *conformanceSeed+uint64(*conformanceRuns); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			fake := etcdfake.New(etcdfake.Options{MinTTL: time.Second}) // as etcdtest's members have
			t.Cleanup(fake.Close)
			d := &differential{
				t: t, rand: rand.New(rand.NewPCG(seed, 0)),
				sides: [2]*side{newSide(fake.Client(t)), newSide(etcdtest.Start(t).Client(t))},
			}
			for i := range *conformanceOps {
				d.step(i)
				if t.Failed() {
					t.Fatalf("after %d operations; to repeat it: -conformance.seed=%d -conformance.runs=1", i+1, seed)
				}
			}
			d.compareWatches()
		})
	}
}

// differential sends the same random operations to the fake and to etcd, and compares the replies.
type differential struct {
	t     *testing.T
	rand  *rand.Rand
	sides [2]*side // the fake, and etcd
	rev   int64
	floor int64 // the last compaction
	last  int   // number of the latest lease; 0: none
	start int64 // the latest start revision of a watch
}

// side is the fake or etcd, with its own lease IDs and watches.
type side struct {
	cli     *clientv3.Client
	leases  []clientv3.LeaseID // by number; 0 means no lease
	watches []*watched
}

func newSide(cli *clientv3.Client) *side { return &side{cli: cli, leases: []clientv3.LeaseID{0}} }

// reply is the result of an operation, without the parts that may differ.
type reply struct {
	msg proto.Message
	err error
}

func (d *differential) step(i int) {
	d.t.Helper()
	what, do := d.operation()
	var replies [2]reply
	for n, s := range d.sides {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		msg, err := do(ctx, s)
		cancel()
		replies[n] = reply{s.normalize(msg), err}
	}
	fake, real := replies[0], replies[1]
	switch {
	case !sameError(fake.err, real.err):
		d.t.Errorf("operation %d, %s:\nfake: %#v\netcd: %#v", i, what, fake.err, real.err)
	case fake.err == nil && !proto.Equal(fake.msg, real.msg):
		d.t.Errorf("operation %d, %s:\nfake: %s\netcd: %s",
			i, what, prototext.Format(fake.msg), prototext.Format(real.msg))
	}
}

// sameError reports whether two errors have the same type, text, code and etcd error.
func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	var ea, eb rpctypes.EtcdError
	return a.Error() == b.Error() && status.Code(a) == status.Code(b) && fmt.Sprintf("%T", a) == fmt.Sprintf("%T", b) &&
		errors.As(a, &ea) == errors.As(b, &eb) && ea.Code() == eb.Code()
}

// normalize removes the IDs of the cluster and member from a reply, and replaces lease IDs by their numbers.
func (s *side) normalize(m proto.Message) proto.Message {
	if m == nil || !m.ProtoReflect().IsValid() {
		return nil
	}
	var walk func(m protoreflect.Message)
	walk = func(m protoreflect.Message) {
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch name := f.Name(); {
			case name == "cluster_id" || name == "member_id" || name == "raft_term":
				m.Clear(f)
			case name == "lease" && f.Kind() == protoreflect.Int64Kind, name == "ID":
				m.Set(f, protoreflect.ValueOfInt64(int64(slices.Index(s.leases, clientv3.LeaseID(v.Int())))))
			case f.Kind() == protoreflect.MessageKind && f.IsList():
				for i := range v.List().Len() {
					walk(v.List().Get(i).Message())
				}
			case f.Kind() == protoreflect.MessageKind:
				walk(v.Message())
			}
			return true
		})
	}
	m = proto.Clone(m)
	walk(m.ProtoReflect())
	return m
}

type do func(ctx context.Context, s *side) (proto.Message, error)

func (d *differential) operation() (string, do) {
	switch n := d.rand.IntN(100); {
	case n < 25:
		op := d.put()
		return op.String(), func(ctx context.Context, s *side) (proto.Message, error) { return d.run(ctx, s, op) }
	case n < 50:
		op := d.get(false)
		return op.String(), func(ctx context.Context, s *side) (proto.Message, error) {
			m, err := d.run(ctx, s, op)
			return op.(*plain).settle(m), err
		}
	case n < 60:
		op := d.remove()
		return op.String(), func(ctx context.Context, s *side) (proto.Message, error) { return d.run(ctx, s, op) }
	case n < 84:
		op := d.txn(2)
		return op.String(), func(ctx context.Context, s *side) (proto.Message, error) { return d.run(ctx, s, op) }
	case n < 92:
		return d.leaseOperation()
	case n < 93:
		d.settle(func(w *watched) bool { return w.late }) // otherwise timing decides which of them etcd cancels
		rev := d.floor + d.rand.Int64N(max(1, d.rev-d.floor)) - 1
		if d.rand.IntN(8) == 0 {
			rev = d.rev + 5
		}
		return fmt.Sprint("compact ", rev), func(ctx context.Context, s *side) (proto.Message, error) {
			resp, err := s.cli.Compact(ctx, rev)
			if err == nil {
				d.floor = max(d.floor, rev)
			}
			return (*pb.CompactionResponse)(resp), err
		}
	default:
		return d.watchOperation()
	}
}

func (d *differential) leaseOperation() (string, do) {
	pick := d.anyLease()
	switch d.rand.IntN(6) {
	case 0, 1:
		ttl := []int64{600, 1000, 5000, 9_000_000_001}[min(3, d.rand.IntN(16)/5)]
		return fmt.Sprint("grant ", ttl), func(ctx context.Context, s *side) (proto.Message, error) {
			resp, err := s.cli.Grant(ctx, ttl)
			if err != nil {
				return nil, err
			}
			s.leases = append(s.leases, resp.ID)
			d.last = len(s.leases) - 1
			return &pb.LeaseGrantResponse{
				Header: resp.ResponseHeader, ID: int64(resp.ID), TTL: resp.TTL, Error: resp.Error,
			}, nil
		}
	case 2:
		return fmt.Sprint("revoke ", pick), func(ctx context.Context, s *side) (proto.Message, error) {
			resp, err := s.cli.Revoke(ctx, s.lease(pick))
			return (*pb.LeaseRevokeResponse)(resp), err
		}
	case 3:
		return fmt.Sprint("keep alive ", pick), func(ctx context.Context, s *side) (proto.Message, error) {
			resp, err := s.cli.KeepAliveOnce(ctx, s.lease(pick))
			if err != nil {
				return nil, err
			}
			return &pb.LeaseKeepAliveResponse{Header: resp.ResponseHeader, ID: int64(resp.ID), TTL: resp.TTL}, nil
		}
	case 4:
		keys := d.rand.IntN(2) == 0
		return fmt.Sprint("time to live ", pick, keys), func(ctx context.Context, s *side) (proto.Message, error) {
			var opts []clientv3.LeaseOption
			if keys {
				opts = append(opts, clientv3.WithAttachedKeys())
			}
			resp, err := s.cli.TimeToLive(ctx, s.lease(pick), opts...)
			if err != nil {
				return nil, err
			}
			slices.SortFunc(resp.Keys, slices.Compare[[]byte])
			return &pb.LeaseTimeToLiveResponse{
				Header: resp.ResponseHeader, ID: int64(resp.ID), GrantedTTL: resp.GrantedTTL, Keys: resp.Keys,
				TTL: min(resp.TTL, 0), // the remaining time differs between the sides
			}, nil
		}
	default:
		return "leases", func(ctx context.Context, s *side) (proto.Message, error) {
			resp, err := s.cli.Leases(ctx)
			if err != nil {
				return nil, err
			}
			all := &pb.LeaseLeasesResponse{Header: resp.ResponseHeader}
			for _, l := range resp.Leases {
				all.Leases = append(all.Leases, &pb.LeaseStatus{ID: int64(l.ID)})
			}
			number := func(l *pb.LeaseStatus) int { return slices.Index(s.leases, clientv3.LeaseID(l.ID)) }
			slices.SortFunc(all.Leases, func(a, b *pb.LeaseStatus) int { return cmp.Compare(number(a), number(b)) })
			return all, nil
		}
	}
}

// anyLease returns the number of a lease that may be alive, revoked, unknown (-1) or no lease (0).
func (d *differential) anyLease() int {
	switch n := d.rand.IntN(12); {
	case n == 0:
		return -1 // never granted
	case n < 9 && d.last > 0:
		return max(1, d.last-d.rand.IntN(4))
	default:
		return 0
	}
}

func (s *side) lease(number int) clientv3.LeaseID {
	if number < 0 {
		return 4711
	}
	return s.leases[number]
}

func (d *differential) run(ctx context.Context, s *side, op operation) (proto.Message, error) {
	if t, ok := op.(*txn); ok { // through Client.Txn, as programs do
		resp, err := s.cli.Txn(ctx).If(t.compares(s)...).Then(ops(s, t.then)...).Else(ops(s, t.els)...).Commit()
		if err == nil {
			d.rev = resp.Header.Revision
		}
		return (*pb.TxnResponse)(resp), err
	}
	resp, err := s.cli.Do(ctx, op.op(s))
	switch {
	case err != nil:
		return nil, err
	case resp.Get() != nil:
		return (*pb.RangeResponse)(resp.Get()), nil
	case resp.Put() != nil:
		d.rev = resp.Put().Header.Revision
		return (*pb.PutResponse)(resp.Put()), nil
	default:
		d.rev = resp.Del().Header.Revision
		return (*pb.DeleteRangeResponse)(resp.Del()), nil
	}
}
