package locker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// observed records the spans and metrics of one session.
type observed struct {
	spans   *tracetest.SpanRecorder
	metrics kit.Metrics
}

// observe adds recording providers to the options of a session.
func observe(o *session.Options) observed {
	seen := observed{tracetest.NewSpanRecorder(), kit.CollectMetrics(o)}
	o.Telemetry.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(seen.spans))
	return seen
}

// named returns the ended spans with a name, in the order in which they ended.
func (o observed) named(name string) []sdktrace.ReadOnlySpan {
	return slices.DeleteFunc(o.spans.Ended(), func(s sdktrace.ReadOnlySpan) bool { return s.Name() != name })
}

// describe formats a span's attributes, events and status on one line.
func describe(s sdktrace.ReadOnlySpan) string {
	var b strings.Builder
	pairs := func(attrs []attribute.KeyValue) {
		for _, kv := range attrs {
			if kv.Key != "holdfast.unproven" { // a time
				fmt.Fprintf(&b, " %s=%v", strings.TrimPrefix(string(kv.Key), "holdfast."), kv.Value.AsInterface())
			}
		}
	}
	pairs(s.Attributes())
	for _, ev := range s.Events() {
		fmt.Fprintf(&b, "; %s", ev.Name)
		pairs(ev.Attributes)
	}
	if s.Status().Description != "" {
		fmt.Fprintf(&b, "; error %s", s.Status().Description)
	}
	return strings.TrimSpace(b.String())
}

func (o observed) expect(t *testing.T, point string, want int64) {
	t.Helper()
	synctest.Wait()
	if got := o.metrics.Points(t); got[point] != want {
		t.Errorf("%s is %d, want %d; all: %v", point, got[point], want, got)
	}
}

func TestSpansRecordHowALockWasAcquired(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var seen observed
		a := kit.Start(t, srv)
		b := kit.Start(t, srv, func(o *session.Options) { seen = observe(o) })

		lk := mustLock(t, locker.NewMutex(a.Sess, "secret/x"))
		if _, err := locker.NewMutex(b.Sess, "secret/x").TryLock(t.Context()); !errors.Is(err, locker.ErrLocked) {
			t.Fatalf("TryLock: %v", err)
		}
		next := lockLater(t.Context(), locker.NewMutex(b.Sess, "secret/x"))
		kit.Queued(t, srv, kit.Entries("secret/x"), 2)
		mustUnlock(t, lk)
		held := <-next
		if held.err != nil {
			t.Fatal(held.err)
		}
		mustUnlock(t, held.lk)

		acquires := seen.named("holdfast.acquire")
		for i, want := range []string{
			"kind=lock outcome=occupied",
			"kind=lock outcome=held; queued position=1; woken; verified",
		} {
			if got := describe(acquires[i]); got != want {
				t.Errorf("acquisition %d: %s\nwant %s", i, got, want)
			}
		}
		release := seen.named("holdfast.release")[0]
		if got := describe(release); got != "kind=lock outcome=released" {
			t.Errorf("release: %s", got)
		}
		if links := release.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != acquires[1].SpanContext().SpanID() {
			t.Errorf("the release is linked to %v", links)
		}
		seen.expect(t, "acquire.duration kind=lock,outcome=occupied", 1)
		seen.expect(t, "acquire.duration kind=lock,outcome=held", 1)
		seen.expect(t, "hold.duration kind=lock,outcome=released", 1)
		for point := range seen.metrics.Points(t) {
			if strings.Contains(point, "secret") {
				t.Errorf("a metric contains the name of the lock: %s", point)
			}
		}
		for _, span := range seen.spans.Ended() {
			if strings.Contains(describe(span), "secret") {
				t.Errorf("a span contains the name of the lock: %s %s", span.Name(), describe(span))
			}
		}
	})
}

// tracedKV notes the span in whose context each Txn is sent.
type tracedKV struct {
	pb.KVClient
	mu      sync.Mutex // protects parents
	parents []trace.SpanID
}

func (kv *tracedKV) Txn(ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	kv.mu.Lock()
	kv.parents = append(kv.parents, trace.SpanContextFromContext(ctx).SpanID())
	kv.mu.Unlock()
	return kv.KVClient.Txn(ctx, r, opts...)
}

func TestRequestsOfALockAndAnUnlockAreChildrenOfTheirSpans(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		cli, kv := link.Client(), &tracedKV{KVClient: link.KVClient()}
		cli.KV = clientv3.NewKVFromKVClient(kv, cli)
		var seen observed
		p := kit.StartOn(t, link, cli, func(o *session.Options) { seen = observe(o) })
		mustUnlock(t, mustLock(t, locker.NewMutex(p.Sess, "x")))

		kv.mu.Lock()
		defer kv.mu.Unlock()
		want := []trace.SpanID{
			seen.named("holdfast.acquire")[0].SpanContext().SpanID(),
			seen.named("holdfast.release")[0].SpanContext().SpanID(),
		}
		if !slices.Equal(kv.parents, want) {
			t.Errorf("the Txns have the parents %v, want the spans of the acquisition and of the release: %v", kv.parents, want)
		}
	})
}

// A call that waits behind another session's lock ends without one.
func TestCallsWithoutAHoldAreCountedByHowTheyEnded(t *testing.T) {
	for outcome, end := range map[string]func(srv *etcdfake.Server, p *kit.Process, giveUp context.CancelFunc){
		"canceled": func(_ *etcdfake.Server, _ *kit.Process, giveUp context.CancelFunc) { giveUp() },
		"closed": func(_ *etcdfake.Server, p *kit.Process, _ context.CancelFunc) {
			_ = p.Sess.Close(context.Background()) // its error is not in question
		},
		"lost": func(srv *etcdfake.Server, p *kit.Process, _ context.CancelFunc) { srv.Revoke(p.Sess.Lease()) },
	} {
		t.Run(outcome, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				var seen observed
				a := kit.Start(t, srv)
				b := kit.Start(t, srv, func(o *session.Options) { seen, o.StayLost = observe(o), true })
				mustLock(t, locker.NewMutex(a.Sess, "x"))
				ctx, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				waits := lockLater(ctx, locker.NewMutex(b.Sess, "x"))
				kit.Queued(t, srv, kit.Entries("x"), 2)
				end(srv, b, giveUp)
				if r := <-waits; r.err == nil {
					t.Fatal("it holds")
				}
				seen.expect(t, "acquire.duration kind=lock,outcome="+outcome, 1)
			})
		})
	}
}

func TestMetricsCountLossesLostRepliesAndStates(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var seen observed
		p := kit.Start(t, srv, func(o *session.Options) {
			o.Telemetry.Attributes = func(kind holdfast.Kind, name string) []attribute.KeyValue {
				team, _, _ := strings.Cut(name, "/")
				return []attribute.KeyValue{attribute.String("team", team)}
			}
			seen = observe(o)
		})
		p.PlanOne("enqueue", etcdfake.Fate{LoseReply: true})
		lk := mustLock(t, locker.NewMutex(p.Sess, "billing/x"))
		seen.expect(t, "replies.ambiguous kind=lock,request=enqueue", 1)
		seen.expect(t, "sessions state=connected", 1)

		srv.Revoke(lk.Lease())
		<-lk.Done()
		time.Sleep(time.Second)
		if n := len(seen.named("holdfast.loss")); n != 2 {
			t.Errorf("%d losses, want that of the lock and that of the session", n)
		}
		seen.expect(t, "losses cause=revoked,kind=lock,team=billing", 1)
		seen.expect(t, "losses cause=revoked,kind=session", 1)
		seen.expect(t, "hold.duration kind=lock,outcome=lost,team=billing", 1)
		if err := p.Sess.Check(); err != nil {
			t.Errorf("the session has no new lease: %v", err)
		}
		seen.expect(t, "sessions state=connected", 1)
		if err := p.Sess.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		seen.expect(t, "sessions state=connected", 0)
		seen.expect(t, "sessions state=lost", 0)
	})
}

// logged collects the output of a logger.
type logged struct {
	mu    sync.Mutex // protects lines
	lines bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *logged) with(text string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.lines.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestLogExplainsALossInOneLineAndIsOtherwiseEmpty(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		var log logged
		p := kit.Start(t, srv, func(o *session.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		mu := locker.NewMutex(p.Sess, "x")
		lk := mustLock(t, mu)
		next := lockLater(t.Context(), mu)
		synctest.Wait()
		mustUnlock(t, lk)
		held := <-next
		if held.err != nil {
			t.Fatal(held.err)
		}
		lk = held.lk
		if lines := log.with(""); len(lines) != 0 {
			t.Errorf("logged without a loss: %q", lines)
		}

		srv.Revoke(lk.Lease())
		<-lk.Done()
		time.Sleep(time.Second)
		lines := log.with("name=x")
		if len(lines) != 1 {
			t.Fatalf("%q, want one line", lines)
		}
		for _, part := range []string{
			"level=WARN", "kind=lock", fmt.Sprintf("token=%d", int64(lk.Token())), fmt.Sprintf("lease=%x", int64(lk.Lease())),
			`msg="holdfast: lost" kind=lock`, "cause=revoked", "held=", "key=" + lk.Key(),
		} {
			if !strings.Contains(lines[0], part) {
				t.Errorf("%q lacks %q", lines[0], part)
			}
		}
	})
}
