package queue

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/reads"
	"github.com/holdfast-go/holdfast/internal/sending"
	"github.com/holdfast-go/holdfast/internal/steps"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// look asks etcd what stands ahead of the entry now, by one flat Txn: a Txn in it would make it a write. If the entry
// that is known to be ahead still stands, it reads no more than the attempt's own entries. Otherwise it also reads:
//
//   - the nearest entry ahead. There may be none, but claims alone tell nothing: they may be revoked alone.
//   - the claims ahead. Those behind the nearest entry are dead.
//   - of claims that are dead, or may be: what they say, and whether the session key of their holder stands. What ends
//     their delay must have been seen at one revision with the rest.
func (w *wait) look(ctx context.Context) error {
	if w.permit != nil {
		return w.permit.look(ctx)
	}
	e, sent := w.e, time.Now()
	n := len(e.of.entries)
	own := make(txns.Ops, 0, n+2)
	for _, each := range e.of.entries {
		own.Add(reads.Meta(each.key))
	}
	all := append(own[:n:n], e.q.Nearest(e.rev))
	var suspects []reads.Claim
	if !e.q.Unclaimed {
		all.Add(e.q.ClaimsAhead(e.rev))
		suspects = w.suspects((txns.MaxOps - n) / 2)
	}
	w.examine(&all, suspects)
	t := txns.Txn{Then: all}
	if w.ahead != nil {
		t.If = []clientv3.Cmp{reads.CreatedAt(string(w.ahead.Key), w.ahead.CreateRevision)}
		t.Then, t.Else = own, all
	}
	r, err := t.Ask(ctx, e.q.host.Sender(), sending.Read)
	if err != nil {
		return err
	}
	if !e.of.standIn(r) {
		return ErrEntryGone
	}
	e.of.saw(r.Header.Revision, sent)
	if w.ahead != nil && r.Succeeded {
		w.tell(ctx)
		return nil
	}
	var claims *pb.RangeResponse
	if !e.q.Unclaimed {
		claims = r.Range(n + 1)
	}
	w.sawAhead(r.First(n), claims, time.Now())
	w.noteExamined(r, n+2, suspects)
	e.say(steps.Step{Action: steps.Judged, Read: r.Header.Revision, Delays: w.ahead == nil && !w.isFree()})
	return nil
}

// standIn reports whether all entries of the attempt stand as this session has put them, by a reply that begins with
// them. One with another mod revision does not count: an administrator may be removing it, and then it stands on a
// lease that ends by itself, perhaps right after this read.
func (a *attempt) standIn(r txns.Reply) bool {
	for i, e := range a.entries {
		if own := r.First(i); !reads.IsEntry(own, e.rev) || own.ModRevision != e.rev {
			return false
		}
	}
	return true
}

// sawAhead records what stands ahead: the nearest entry, or nil, and all claims; nil: none were read.
func (w *wait) sawAhead(nearest *mvccpb.KeyValue, claims *pb.RangeResponse, now time.Time) {
	w.ahead = nearest
	w.claims, w.more = w.e.q.Dead(nearest, claims.GetKvs()), claims.GetMore()
	w.e.q.shared.sights.noteDead(w.claims, now)
	w.e.reach(placed)
}

// suspects returns claims whose value and session key a look is to read, at most so many: that of the entry ahead,
// which may be the next to go, and the dead ones of which it is not known yet that their session key has gone.
func (w *wait) suspects(most int) (claims []reads.Claim) {
	if w.ahead != nil {
		if _, ours := layout.LeaseOf(string(w.ahead.Key)); ours {
			claims = append(claims, reads.Claim{
				Key: w.e.q.At.ClaimKey(string(w.ahead.Key)), Rev: w.ahead.CreateRevision,
			})
		}
	}
	known := &w.e.q.shared.sights
	var again []reads.Claim
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

// examine adds the reads of what claims say, and of the session keys of their holders.
func (w *wait) examine(to *txns.Ops, claims []reads.Claim) {
	for _, c := range claims {
		to.Add(clientv3.OpGet(c.Key), clientv3.OpGet(w.sessionKeyOf(c), clientv3.WithCountOnly()))
	}
}

// noteExamined records the replies to examine, the first of which is response i. The same reply shows which are dead.
func (w *wait) noteExamined(r txns.Reply, i int, claims []reads.Claim) {
	for _, c := range claims {
		if claim := r.First(i); w.isDead(c) && reads.IsEntry(claim, c.Rev) {
			w.e.q.shared.sights.noteExamined(claim, r.Range(i+1).Count == 0, time.Now())
		}
		i += 2
	}
}

// isDead reports whether a claim is dead, as the latest look has shown.
func (w *wait) isDead(c reads.Claim) bool {
	for _, dead := range w.claims {
		if dead.Key == c.Key && dead.Rev == c.Rev {
			return true
		}
	}
	return false
}

// sessionKeyOf is the session key of the holder of a claim. A key that no session of ours has made names none; then
// this is one that does not exist, and its delay is the lock delay.
func (w *wait) sessionKeyOf(c reads.Claim) string {
	id, _ := layout.LeaseOf(w.e.q.At.EntryOf(c.Key))
	return w.e.q.host.SessionKey(id)
}
