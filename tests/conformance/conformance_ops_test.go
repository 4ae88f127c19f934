package conformance_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// operation is a random key-value operation. op builds it with the lease IDs of one side.
type operation interface {
	op(s *side) clientv3.Op
	String() string
}

type plain struct {
	what  string
	make  func(opts ...clientv3.OpOption) clientv3.Op
	opts  []clientv3.OpOption
	lease int // 0: none

	// sortKey is the sort key of a range that is sorted by a field that may be equal in several keys. etcd does not
	// specify the order of equal keys.
	sortKey func(*mvccpb.KeyValue) int64
	limited bool
}

// settle makes a reply independent of the order of equal keys.
func (p *plain) settle(m proto.Message) proto.Message {
	r, ok := m.(*pb.RangeResponse)
	if !ok || r == nil || p.sortKey == nil {
		return m
	}
	var order []*mvccpb.KeyValue
	for _, kv := range r.Kvs {
		order = append(order, &mvccpb.KeyValue{Version: p.sortKey(kv)})
	}
	if p.limited {
		r.Kvs = order
		return r
	}
	slices.SortFunc(r.Kvs, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	r.Kvs = append(r.Kvs, order...)
	return r
}

func (p *plain) op(s *side) clientv3.Op {
	opts := p.opts[:len(p.opts):len(p.opts)]
	if p.lease != 0 {
		opts = append(opts, clientv3.WithLease(s.lease(p.lease)))
	}
	return p.make(opts...)
}

func (p *plain) String() string { return p.what }

// option adds an option if on.
func (p *plain) option(on bool, what string, opt clientv3.OpOption) {
	if on {
		p.what += " " + what
		p.opts = append(p.opts, opt)
	}
}

func (d *differential) chance(oneIn int) bool { return d.rand.IntN(oneIn) == 0 }

func (d *differential) key() string {
	if d.chance(60) {
		return ""
	}
	first := []string{"a", "a/", "a/b", "b", "c/\x00", "c", "\xff"}[d.rand.IntN(7)]
	return first + []string{"", "1", "2", "\xff"}[d.rand.IntN(4)]
}

func (d *differential) put() operation {
	key, value := d.key(), fmt.Sprint(d.rand.IntN(20))
	if d.chance(6) {
		value = ""
	}
	p := &plain{what: fmt.Sprintf("put %q %q", key, value)}
	p.make = func(opts ...clientv3.OpOption) clientv3.Op { return clientv3.OpPut(key, value, opts...) }
	if d.chance(3) {
		p.lease = d.anyLease()
		p.what += fmt.Sprint(" lease ", p.lease)
	}
	p.option(d.chance(4), "prev", clientv3.WithPrevKV())
	p.option(d.chance(10), "ignore value", clientv3.WithIgnoreValue())
	p.option(d.chance(10), "ignore lease", clientv3.WithIgnoreLease())
	return p
}

// scope makes p apply to a prefix, a range, all keys from its own on, or one key.
func (d *differential) scope(p *plain) {
	switch d.rand.IntN(5) {
	case 0, 1:
		p.option(true, "prefix", clientv3.WithPrefix())
	case 2:
		end := d.key() + "z"
		p.option(true, fmt.Sprintf("to %q", end), clientv3.WithRange(end))
	case 3:
		p.option(true, "from key", clientv3.WithFromKey())
	}
}

func (d *differential) get(nested bool) operation {
	key := d.key()
	p := &plain{what: fmt.Sprintf("get %q", key)}
	p.make = func(opts ...clientv3.OpOption) clientv3.Op { return clientv3.OpGet(key, opts...) }
	d.scope(p)
	rev := func() int64 { return max(0, d.rev-d.rand.Int64N(60)) }
	if d.chance(2) {
		target, order := clientv3.SortTarget(d.rand.IntN(5)), clientv3.SortOrder(d.rand.IntN(3))
		switch target {
		case clientv3.SortByVersion:
			p.sortKey = (*mvccpb.KeyValue).GetVersion
		case clientv3.SortByCreateRevision:
			p.sortKey = (*mvccpb.KeyValue).GetCreateRevision
		case clientv3.SortByModRevision:
			p.sortKey = (*mvccpb.KeyValue).GetModRevision
		case clientv3.SortByValue:
			p.sortKey = func(kv *mvccpb.KeyValue) int64 { n, _ := strconv.ParseInt(string(kv.Value), 10, 64); return n }
		}
		// settle ignores replies inside a Txn, so a sorted range there returns only a count.
		p.option(nested && p.sortKey != nil, "count only", clientv3.WithCountOnly())
		p.option(true, fmt.Sprint("sort ", target, order), clientv3.WithSort(target, order))
	}
	p.limited = d.chance(4)
	p.option(p.limited, "limit", clientv3.WithLimit(1+d.rand.Int64N(4)))
	p.option(d.chance(6), "keys only", clientv3.WithKeysOnly())
	p.option(d.chance(10), "count only", clientv3.WithCountOnly())
	p.option(d.chance(8), "serializable", clientv3.WithSerializable())
	if r := rev(); d.chance(5) {
		p.option(true, fmt.Sprint("at ", r), clientv3.WithRev(r))
	}
	p.option(d.chance(60), "in the future", clientv3.WithRev(d.rev+100))
	p.option(d.chance(12), "min create", clientv3.WithMinCreateRev(rev()))
	p.option(d.chance(12), "max create", clientv3.WithMaxCreateRev(rev()))
	p.option(d.chance(12), "min mod", clientv3.WithMinModRev(rev()))
	p.option(d.chance(12), "max mod", clientv3.WithMaxModRev(rev()))
	return p
}

func (d *differential) remove() operation {
	key := d.key()
	p := &plain{what: fmt.Sprintf("delete %q", key)}
	p.make = func(opts ...clientv3.OpOption) clientv3.Op { return clientv3.OpDelete(key, opts...) }
	if d.chance(2) {
		d.scope(p)
	}
	p.option(d.chance(3), "prev", clientv3.WithPrevKV())
	return p
}

type txn struct {
	what      string
	cmps      []func(s *side) clientv3.Cmp
	then, els []operation
}

func (t *txn) String() string { return t.what }

func (t *txn) compares(s *side) []clientv3.Cmp {
	var cmps []clientv3.Cmp
	for _, c := range t.cmps {
		cmps = append(cmps, c(s))
	}
	return cmps
}

func (t *txn) op(s *side) clientv3.Op {
	return clientv3.OpTxn(t.compares(s), ops(s, t.then), ops(s, t.els))
}

func ops(s *side, list []operation) []clientv3.Op {
	var all []clientv3.Op
	for _, o := range list {
		all = append(all, o.op(s))
	}
	return all
}

func (d *differential) txn(depth int) operation {
	t := &txn{}
	for range d.rand.IntN(3) {
		c, what := d.compare()
		t.cmps, t.what = append(t.cmps, c), t.what+what
	}
	t.then, t.els = d.list(depth), d.list(depth)
	t.what = fmt.Sprintf("txn if(%s) then %v else %v", t.what, t.then, t.els)
	return t
}

func (d *differential) list(depth int) []operation {
	n := d.rand.IntN(4)
	if d.chance(150) {
		n = 126 + d.rand.IntN(4) // close to the limit of 128
	}
	var all []operation
	for range n {
		switch k := d.rand.IntN(10); {
		case k < 4:
			all = append(all, d.put())
		case k < 7:
			all = append(all, d.get(true))
		case k < 9 || depth == 0:
			all = append(all, d.remove())
		default:
			all = append(all, d.txn(depth-1))
		}
	}
	return all
}

func (d *differential) compare() (func(s *side) clientv3.Cmp, string) {
	key, result := d.key(), []string{"=", "!=", "<", ">"}[d.rand.IntN(4)]
	rev := max(0, d.rev-d.rand.Int64N(40))
	if d.chance(3) {
		rev = 0
	}
	lease, version, value := d.anyLease(), d.rand.IntN(4), fmt.Sprint(d.rand.IntN(20))
	if result == "<" || result == ">" {
		lease = 0 // lease IDs are ordered differently on each side
	}
	target, prefix := d.rand.IntN(5), d.chance(4)
	return func(s *side) clientv3.Cmp {
		var c clientv3.Cmp
		switch target {
		case 0:
			c = clientv3.Compare(clientv3.CreateRevision(key), result, rev)
		case 1:
			c = clientv3.Compare(clientv3.ModRevision(key), result, rev)
		case 2:
			c = clientv3.Compare(clientv3.Version(key), result, version)
		case 3:
			c = clientv3.Compare(clientv3.Value(key), result, value)
		case 4:
			c = clientv3.Compare(clientv3.LeaseValue(key), result, s.lease(lease))
		}
		if prefix && key != "" {
			c = c.WithPrefix()
		}
		return c
	}, fmt.Sprintf(" %d(%q prefix=%v) %s %d/%d/%s/%d", target, key, prefix, result, rev, version, value, lease)
}
