package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/internal/testkit/fencingtest"
)

// fence is a holder in an etcd server and its writer. The writer uses link, which can
// fail; cli cannot.
type fence struct {
	*holder
	srv  *etcdtest.Server
	link *etcdtest.Link
	cli  *clientv3.Client
	w    *etcdfence.Writer
}

func newFence(t *testing.T) *fence {
	t.Helper()
	srv := etcdtest.Start(t)
	f := &fence{srv: srv, link: srv.Link(t), cli: srv.Client(t)}
	f.holder = f.hold(t)
	f.w = f.writer(f.holder)
	return f
}

func (f *fence) writer(h *holder) *etcdfence.Writer {
	return etcdfence.NewWriter(h).With(etcdfence.WriterOptions{Auditor: quiet})
}

// hold creates the entry, and returns its holder.
func (f *fence) hold(t *testing.T) *holder {
	t.Helper()
	resp, err := f.cli.Put(t.Context(), entry, "")
	if err != nil {
		t.Fatal(err)
	}
	return &holder{cli: f.link.Client(), entry: entry, token: holdfast.Token(resp.Header.Revision)}
}

func (f *fence) put(t *testing.T, key, val string) {
	t.Helper()
	if _, err := f.cli.Put(t.Context(), key, val); err != nil {
		t.Fatal(err)
	}
}

func (f *fence) delete(t *testing.T, key string) {
	t.Helper()
	if _, err := f.cli.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

func (f *fence) value(t *testing.T, key string) string {
	t.Helper()
	resp, err := f.cli.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return "(absent)"
	}
	return string(resp.Kvs[0].Value)
}

// oneRPC checks that do sends a single Txn.
func (f *fence) oneRPC(t *testing.T, do func()) {
	t.Helper()
	before := f.link.Count()
	do()
	if n := f.link.Count().Since(before); n.Total() != 1 || n["Txn"] != 1 {
		t.Errorf("a write sent %v", n)
	}
}

func TestHolderWritesLikeAClient(t *testing.T) {
	f := newFence(t)
	ctx := t.Context()

	f.oneRPC(t, func() {
		resp, err := f.w.Put(ctx, "a/1", "one")
		if err != nil {
			t.Fatal(err)
		}
		kv := f.srv.Keys(t, "a/1")[0]
		if h := resp.Header; h.Revision != kv.ModRevision || h.ClusterId == 0 || h.MemberId == 0 || h.RaftTerm == 0 {
			t.Errorf("header of a put at revision %d is %v", kv.ModRevision, h)
		}
	})
	f.oneRPC(t, func() {
		resp, err := f.w.Put(ctx, "a/1", "uno", clientv3.WithPrevKV())
		if err != nil || string(resp.PrevKv.GetValue()) != "one" {
			t.Errorf("put over a/1: previous %v, %v", resp.PrevKv, err)
		}
	})
	if got := f.value(t, "a/1"); got != "uno" {
		t.Errorf("a/1 is %s", got)
	}

	f.put(t, "a/2", "two")
	f.oneRPC(t, func() {
		resp, err := f.w.Delete(ctx, "a/", clientv3.WithPrefix(), clientv3.WithPrevKV())
		if err != nil || resp.Deleted != 2 || len(resp.PrevKvs) != 2 || resp.Header.GetClusterId() == 0 {
			t.Errorf("delete of a/: %v, %v", resp, err)
		}
	})
	resp, err := f.w.Delete(ctx, "a/1")
	if err != nil || resp.Deleted != 0 {
		t.Errorf("delete of an absent key: %v, %v", resp, err)
	}
}

func TestPutCarriesItsLease(t *testing.T) {
	f := newFence(t)
	lease, err := f.cli.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.w.Put(t.Context(), "k", "v", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if kv := f.srv.Keys(t, "k")[0]; kv.Lease != int64(lease.ID) {
		t.Errorf("k has lease %x, want %x", kv.Lease, lease.ID)
	}
	f.srv.Revoke(t, lease.ID)
	if got := f.value(t, "k"); got != "(absent)" {
		t.Errorf("k outlived its lease: %s", got)
	}
	_, err = f.w.Put(t.Context(), "k", "v", clientv3.WithLease(lease.ID))
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, holdfast.ErrOutcomeUnknown) ||
		etcderr.Classify(err) != etcderr.LeaseGone {
		t.Errorf("put with a lease that is gone: %v", err)
	}
}

func TestTransactionAnswersForItsOwnComparisons(t *testing.T) {
	f := newFence(t)
	absent := clientv3.Compare(clientv3.CreateRevision("k"), "=", 0)
	for round, succeeded := range []bool{true, false} {
		f.oneRPC(t, func() {
			resp, err := f.w.Txn(t.Context()).If(absent).
				Then(clientv3.OpPut("k", "v"), clientv3.OpGet("k")).
				Else(clientv3.OpGet("k"), clientv3.OpPut("else", "yes"),
					clientv3.OpDelete("k", clientv3.WithPrevKV())).
				Commit()
			if err != nil || resp.Succeeded != succeeded {
				t.Fatalf("round %d: %v, %v", round, resp, err)
			}
			h := resp.Header
			if want := f.revision(t); h.GetRevision() != want || h.GetClusterId() == 0 || h.GetMemberId() == 0 ||
				h.GetRaftTerm() == 0 {
				t.Errorf("round %d: header %v at revision %d", round, h, want)
			}
			got := resp.Responses
			if succeeded {
				if len(got) != 2 || got[0].GetResponsePut() == nil || len(got[1].GetResponseRange().GetKvs()) != 1 {
					t.Errorf("round %d: responses %v", round, got)
				}
				return
			}
			if len(got) != 3 || string(got[2].GetResponseDeleteRange().GetPrevKvs()[0].Value) != "v" {
				t.Errorf("round %d: responses %v", round, got)
			}
		})
	}
	if f.value(t, "else") != "yes" || f.value(t, "k") != "(absent)" {
		t.Error("the branch for failed comparisons did not run for the holder")
	}
	// An empty transaction only compares the entry.
	if resp, err := f.w.Txn(t.Context()).Commit(); err != nil || !resp.Succeeded {
		t.Errorf("empty transaction: %v, %v", resp, err)
	}
}

func (f *fence) revision(t *testing.T) int64 {
	t.Helper()
	resp, err := f.cli.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

func TestStaleHolderWritesNothing(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *fence){
		"entry deleted":    func(t *testing.T, f *fence) { f.delete(t, entry) },
		"entry re-created": func(t *testing.T, f *fence) { f.delete(t, entry); f.put(t, entry, "") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFence(t)
			f.put(t, "k", "old")
			lose(t, f)
			before := f.revision(t)
			for name, write := range fencingtest.Writes {
				f.oneRPC(t, func() {
					err := write(t.Context(), f.w)
					if !errors.Is(err, fencing.ErrStale) || errors.Is(err, holdfast.ErrOutcomeUnknown) ||
						etcderr.Retryable(err) {
						t.Errorf("%s: %v", name, err)
					}
					mustSay(t, err, "token "+f.token.String())
				})
			}
			// The caller's Else must not run either.
			_, err := f.w.Txn(t.Context()).If(clientv3.Compare(clientv3.Value("k"), "=", "other")).
				Then(clientv3.OpPut("k", "then")).Else(clientv3.OpPut("k", "else")).Commit()
			if !errors.Is(err, fencing.ErrStale) {
				t.Errorf("with comparisons: %v", err)
			}
			if _, err := f.w.Txn(t.Context()).Commit(); !errors.Is(err, fencing.ErrStale) {
				t.Errorf("empty transaction: %v", err)
			}
			if f.value(t, "k") != "old" || f.revision(t) != before {
				t.Errorf("k is %s, revision went from %d to %d", f.value(t, "k"), before, f.revision(t))
			}
		})
	}
}

// As by Proclaim.
func TestNewValueOfTheEntryKeepsItsHolder(t *testing.T) {
	f := newFence(t)
	f.put(t, entry, "proclaimed")
	if _, err := f.w.Put(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
}

func TestOnlyTheNewestHolderWrites(t *testing.T) {
	f := newFence(t)
	hs := []*holder{f.holder}
	for range 3 {
		f.delete(t, entry)
		hs = append(hs, f.hold(t))
		for i, h := range hs {
			_, err := f.writer(h).Put(t.Context(), "k", h.token.String())
			if newest := i == len(hs)-1; newest != (err == nil) || !newest && !errors.Is(err, fencing.ErrStale) {
				t.Errorf("holder %d of %d: %v", i+1, len(hs), err)
			}
		}
	}
	if !slices.IsSortedFunc(hs, func(a, b *holder) int { return int(a.token - b.token) }) {
		t.Error("tokens do not increase")
	}
	var values []string
	for _, ev := range f.srv.History(t, "k") {
		values = append(values, string(ev.Kv.Value))
	}
	if want := []string{hs[1].token.String(), hs[2].token.String(), hs[3].token.String()}; !slices.Equal(values, want) {
		t.Errorf("k was %v, want %v", values, want)
	}
}

// The caller has given up, the request is still in a socket, and arrives when another
// client holds the lock.
func TestWriteThatArrivesAfterTheEntryIsGoneIsRefused(t *testing.T) {
	fencingtest.ForEachWrite(t, func(t *testing.T, write fencingtest.Write) {
		f := newFence(t)
		f.put(t, "k", "old")
		held := f.link.Hold("Txn")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-held.Arrived(); cancel() }() // ends with Arrived, which the next line waits for
		err := write(ctx, f.w)
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) ||
			errors.Is(err, fencing.ErrStale) {
			t.Errorf("canceled: %v", err)
		}
		f.delete(t, entry)
		newer := f.hold(t)
		held.Deliver()
		<-held.Delivered()
		if _, err := held.Reply(); err != nil {
			t.Errorf("the server did not answer: %v", err)
		}
		if got := f.value(t, "k"); got != "old" {
			t.Errorf("k became %s", got)
		}
		if err := write(t.Context(), f.writer(newer)); err != nil {
			t.Error(err)
		}
	})
}

func TestWriteWhoseReplyIsLostHasAnUnknownOutcome(t *testing.T) {
	f := newFence(t)
	f.link.LoseReply("Txn", 1, codes.Unavailable)
	f.oneRPC(t, func() {
		_, err := f.w.Put(t.Context(), "k", "v")
		if !errors.Is(err, holdfast.ErrOutcomeUnknown) || errors.Is(err, fencing.ErrStale) {
			t.Errorf("error is %v", err)
		}
	})
	if got := f.value(t, "k"); got != "v" {
		t.Errorf("k is %s", got)
	}
}

// The exception in the package documentation: a proxy answers Canceled. If this fails
// because etcd's client no longer repeats writes, remove that paragraph.
func TestEtcdsClientRepeatsAWriteThatAProxyCanceled(t *testing.T) {
	f := newFence(t)
	f.link.LoseReply("Txn", 1, codes.Canceled)
	before := f.link.Count()
	if _, err := f.w.Put(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
	if n := f.link.Count().Since(before); n["Txn"] != 2 {
		t.Errorf("sent as %v", n)
	}
}

func TestUnreachableEtcdEndsWithTheContext(t *testing.T) {
	f := newFence(t)
	f.link.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := f.w.Put(ctx, "k", "v")
	if !errors.Is(err, holdfast.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	mustSay(t, err, `"k"`, fmt.Sprint("token ", f.token))
}

func TestEtcdAgreesOnTheLimitOfOperations(t *testing.T) {
	f := newFence(t)
	for _, c := range fencingtest.Limits {
		t.Run(c.Name, func(t *testing.T) {
			resp, err := f.w.Txn(t.Context()).If(c.Cmps...).Then(c.Then...).Else(c.Els...).Commit()
			if c.OK != (err == nil) || c.OK && !resp.Succeeded {
				t.Errorf("the writer: %v", err)
			}
			// The same without the writer.
			_, err = f.cli.Txn(t.Context()).If(f.Holding()...).Then(clientv3.OpTxn(c.Cmps, c.Then, c.Els)).Commit()
			if c.OK != (err == nil) || !c.OK && !errors.Is(err, rpctypes.ErrTooManyOps) {
				t.Errorf("etcd: %v", err)
			}
		})
	}
}
