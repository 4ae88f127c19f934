package locker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// observed records the spans and metrics of one session.
type observed struct {
	t       *testing.T
	spans   *tracetest.SpanRecorder
	metrics *sdkmetric.ManualReader
}

// observe adds recording providers to the options of a session.
func observe(t *testing.T, o *session.Options) observed {
	seen := observed{t, tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()}
	o.Telemetry.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(seen.spans))
	o.Telemetry.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(seen.metrics))
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
				fmt.Fprintf(&b, " %s=%s", strings.TrimPrefix(string(kv.Key), "holdfast."), kv.Value.String())
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

// points maps "name attributes" of every data point to its value, or to its count for a histogram.
func (o observed) points() map[string]int64 {
	o.t.Helper()
	var all metricdata.ResourceMetrics
	if err := o.metrics.Collect(context.Background(), &all); err != nil {
		o.t.Fatal(err)
	}
	points := make(map[string]int64)
	add := func(name string, attrs attribute.Set, value int64) {
		points[strings.TrimPrefix(name, "holdfast.")+" "+strings.ReplaceAll(attrs.Encoded(attribute.DefaultEncoder()),
			"holdfast.", "")] = value
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, int64(p.Count))
			}
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, p.Value)
			}
		}
	}
	return points
}

func (o observed) expect(point string, want int64) {
	o.t.Helper()
	if got := o.points(); got[point] != want {
		o.t.Errorf("%s is %d, want %d; all: %v", point, got[point], want, got)
	}
}

func TestSpansRecordHowALockWasAcquired(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a := open(t, srv.Client(t), session.Options{})
	var o session.Options
	seen := observe(t, &o)
	link := srv.Link(t)
	b := open(t, link.Client(), o)

	lk := mustLock(t, locker.NewMutex(a, "secret/x"))
	if _, err := locker.NewMutex(b, "secret/x").TryLock(deadline(t)); err == nil {
		t.Fatal("TryLock acquired a held lock")
	}
	if err := link.Wait(deadline(t), "Range", 1); err != nil { // after the watch of the session key
		t.Fatal(err)
	}
	looked := make(chan struct{}, 100)
	link.LoseRequest("Txn", 0, func(request any) bool { // loses none
		readsOwn := func(op *pb.RequestOp) bool {
			r := op.GetRequestRange()
			return len(r.GetRangeEnd()) == 0 && strings.Contains(string(r.GetKey()), "/@/")
		}
		if slices.ContainsFunc(request.(*pb.TxnRequest).Success, readsOwn) {
			looked <- struct{}{}
		}
		return false
	})
	next := lockLater(deadline(t), locker.NewMutex(b, "secret/x"))
	<-looked // the read after the watch is set
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	held := <-next
	if held.err != nil {
		t.Fatal(held.err)
	}
	if err := held.lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}

	acquires := seen.named("holdfast.acquire")
	for i, want := range []string{
		"kind=lock outcome=occupied",
		"kind=lock outcome=held; queued position=1; armed; woken; verified",
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
	seen.expect("acquire.duration kind=lock,outcome=occupied", 1)
	seen.expect("acquire.duration kind=lock,outcome=held", 1)
	eventually(t, "the hold is recorded", func() bool {
		return seen.points()["hold.duration kind=lock,outcome=released"] == 1
	})
	for point := range seen.points() {
		if strings.Contains(point, "secret") {
			t.Errorf("a metric contains the name of the lock: %s", point)
		}
	}
	for _, span := range seen.spans.Ended() {
		if strings.Contains(describe(span), "secret") {
			t.Errorf("a span contains the name of the lock: %s %s", span.Name(), describe(span))
		}
	}
}

func TestMetricsCountLossesLostRepliesAndStates(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	link := srv.Link(t)
	// A quarter of the lock delay is what the session has to find out why its key was deleted.
	o := session.Options{LockDelay: time.Minute}
	o.Telemetry.Attributes = func(kind holdfast.Kind, name string) []attribute.KeyValue {
		team, _, _ := strings.Cut(name, "/")
		return []attribute.KeyValue{attribute.String("team", team)}
	}
	seen := observe(t, &o)
	sess := open(t, link.Client(), o)
	link.LoseReply("Txn", 1, codes.Unavailable)
	lk := mustLock(t, locker.NewMutex(sess, "billing/x"))
	seen.expect("replies.ambiguous kind=lock,request=enqueue", 1)
	seen.expect("sessions state=connected", 1)

	srv.Revoke(t, lk.Lease())
	<-lk.Done()
	eventually(t, "the loss is recorded", func() bool { return len(seen.named("holdfast.loss")) == 2 })
	seen.expect("losses cause=revoked,kind=lock,team=billing", 1)
	seen.expect("losses cause=revoked,kind=session", 1)
	seen.expect("hold.duration kind=lock,outcome=lost,team=billing", 1)
	eventually(t, "the session has a new lease", func() bool { return sess.Check() == nil })
	eventually(t, "the state is recorded", func() bool { return seen.points()["sessions state=connected"] == 1 })
	if err := sess.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	seen.expect("sessions state=connected", 0)
	seen.expect("sessions state=lost", 0)
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
	t.Parallel()
	srv := etcdtest.Start(t)
	var log logged
	// A quarter of the lock delay is what the session has to find out why its key was deleted.
	sess := open(t, srv.Client(t), session.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)),
		TTL: 30 * time.Second, LockDelay: time.Minute})
	mu := locker.NewMutex(sess, "x")
	lk := mustLock(t, mu)
	next := lockLater(deadline(t), mu)
	if err := lk.Unlock(deadline(t)); err != nil {
		t.Fatal(err)
	}
	held := <-next
	if held.err != nil {
		t.Fatal(held.err)
	}
	lk = held.lk
	if lines := log.with(""); len(lines) != 0 {
		t.Errorf("logged without a loss: %q", lines)
	}

	srv.Revoke(t, lk.Lease())
	eventually(t, "the loss of the lock is logged", func() bool { return len(log.with("name=x")) > 0 })
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
}
