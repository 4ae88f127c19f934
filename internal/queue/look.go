package queue

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/ahead"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/requests"
)

// look asks etcd what stands ahead of the entry now, by one flat Txn: a Txn in it would make it a write. If the entry
// that is known to be ahead still stands, it reads no more than the attempt's own entries. Otherwise it also reads what
// stands ahead: see wait.asks. Of a Set it reads that also for the entries after it that wait, while there is room.
func (w *wait) look(ctx context.Context) error {
	if w.permit != nil {
		return w.permit.look(ctx)
	}
	a, sent := w.e.of, time.Now()
	n := len(a.entries)
	own := make(requests.Ops, 0, n+2)
	for _, each := range a.entries {
		own.Add(ahead.Meta(each.key))
	}
	all, looks := own[:n:n], make([]aheadOf, 0, 1)
	for _, e := range a.entries[slices.Index(a.entries, w.e):] {
		if e.wait.isFree() && e != w.e {
			continue
		}
		ops, suspects := e.wait.asks((requests.MaxOps - n) / 2)
		if e != w.e && len(all)+len(ops) > requests.MaxOps {
			break
		}
		looks = append(looks, aheadOf{&e.wait, all.Add(ops...), suspects})
	}
	t := requests.Txn{Then: all}
	if w.ahead != nil {
		t.If = []clientv3.Cmp{ahead.CreatedAt(string(w.ahead.Key), w.ahead.CreateRevision)}
		t.Then, t.Else = own, all
	}
	r, err := t.Ask(ctx, w.e.q.host.Sender(), requests.Read)
	if err != nil {
		return err
	}
	if !a.standIn(r) {
		return ErrEntryGone
	}
	a.revision, a.lookSent = r.Header.Revision, sent
	if w.ahead != nil && r.Succeeded {
		w.tell(ctx)
		return nil
	}
	for _, each := range looks {
		each.wait.lookSent = sent
		each.read(r)
	}
	return nil
}

// aheadOf is what a look reads of what stands ahead of an entry.
type aheadOf struct {
	*wait
	first    int           // the reply to the first of its operations
	suspects []ahead.Claim // see wait.suspects
}

// asks returns the operations that read what stands ahead of the entry:
//
//   - the nearest entry ahead. There may be none, but claims alone tell nothing: they may be revoked alone.
//   - the claims ahead. Those behind the nearest entry are dead.
//   - of claims that are dead, or may be: what they say, and whether the session key of their holder stands. What ends
//     their delay must have been seen at one revision with the rest. most bounds how many claims it asks for.
func (w *wait) asks(most int) (ops requests.Ops, suspects []ahead.Claim) {
	q, rev := w.e.q, w.e.rev
	ops.Add(q.Nearest(rev))
	if q.Unclaimed {
		return ops, nil
	}
	ops.Add(q.ClaimsAhead(rev))
	suspects = w.suspects(most)
	w.examine(&ops, suspects)
	return ops, suspects
}

// read reads the replies to asks.
func (l aheadOf) read(r requests.Reply) {
	w, e := l.wait, l.wait.e
	var claims *pb.RangeResponse
	if !e.q.Unclaimed {
		claims = r.Range(l.first + 1)
	}
	w.ahead = r.First(l.first)
	w.claims, w.more = e.q.Dead(w.ahead, claims.GetKvs()), claims.GetMore()
	e.q.shared.sights.noteDead(w.claims, time.Now())
	w.noteExamined(r, l.first+2, l.suspects)
	e.place(r.Header.Revision, w.ahead == nil && (len(w.claims) > 0 || w.more))
}

// standIn reports whether all entries of the attempt stand as this session has put them, by a reply that begins with
// them. One with another mod revision does not count: an administrator may be removing it, and then it stands on a
// lease that ends by itself, perhaps right after this read.
func (a *attempt) standIn(r requests.Reply) bool {
	for i, e := range a.entries {
		if own := r.First(i); !ahead.IsEntry(own, e.rev) || own.ModRevision != e.rev {
			return false
		}
	}
	return true
}

// suspects returns the claims whose value and session key a look reads: the claim of the entry ahead, because that may
// go next, and each dead claim until its session key has gone. most bounds how many.
func (w *wait) suspects(most int) (claims []ahead.Claim) {
	if w.ahead != nil {
		if _, ours := layout.LeaseOf(string(w.ahead.Key)); ours {
			claims = append(claims, ahead.Claim{
				Key: w.e.q.At.ClaimKey(string(w.ahead.Key)), Rev: w.ahead.CreateRevision,
			})
		}
	}
	known := &w.e.q.shared.sights
	var again []ahead.Claim
	for _, c := range w.claims {
		switch {
		case !known.isExamined(c):
			claims = append(claims, c)
		case known.isOpen(c):
			again = append(again, c)
		}
	}
	claims = append(claims, again...)
	return claims[:min(len(claims), most)]
}

// examine adds the reads of what claims say, and of the session keys of their holders. The key of a foreign entry names
// no session. Then the key that is read does not exist, so the delay is the lock delay.
func (w *wait) examine(to *requests.Ops, claims []ahead.Claim) {
	q := w.e.q
	for _, c := range claims {
		holder, _ := layout.LeaseOf(q.At.EntryOf(c.Key))
		to.Add(clientv3.OpGet(c.Key), clientv3.OpGet(q.host.SessionKey(holder), clientv3.WithCountOnly()))
	}
}

// noteExamined records the replies to examine, the first of which is response i. Which are dead was recorded before.
func (w *wait) noteExamined(r requests.Reply, i int, claims []ahead.Claim) {
	for range claims {
		if claim := r.First(i); claim != nil {
			w.e.q.shared.sights.noteExamined(claim, r.Range(i+1).Count == 0, time.Now())
		}
		i += 2
	}
}
