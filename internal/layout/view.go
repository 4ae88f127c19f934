package layout

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/view"
)

// View returns what people see of an entry of this queue. The token and the TTL are left out.
func (q Keyspace) View(kv *mvccpb.KeyValue) view.Entry {
	e := view.Entry{Key: string(kv.Key), Revision: kv.CreateRevision, Lease: clientv3.LeaseID(kv.Lease)}
	_, ours := LeaseOf(e.Key)
	e.Foreign, e.Shared = !ours, ours && IsReader(e.Key)
	if q.Kind == holdfast.KindSemaphore {
		e.Weight = WeightOf(e.Key)
		e.Waits = q.IsTurn(e.Key) && kv.Version == 1
	}
	v, ok := DecodeValue(kv.Value)
	switch {
	case ok && !q.Verbatim:
		e.Owner, e.Host, e.PID, e.Value = v.Owner, v.Host, v.PID, v.Data
		e.QueuedAt, e.HeldAt, e.ReleasedAt, e.TakenUntil = v.Queued, v.Held, v.Released, v.TakenUntil
		e.DetachedAt, e.DetachedUntil = v.Detached, v.DetachedUntil
		e.Notice = view.Notice(v.Notice)
	case q.Verbatim || e.Foreign:
		e.Value = string(kv.Value[:min(len(kv.Value), MaxData)])
	}
	return e
}
