package locker_test

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline is a context for what must not take long; a test that waits for it
// has failed.
func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func lockLater(ctx context.Context, mu *locker.Mutex) <-chan result {
	done := make(chan result, 1)
	go func() { // ends with ctx; the test receives from done
		lk, err := mu.Lock(ctx)
		done <- result{lk, err}
	}()
	return done
}

// mustLock locks what is free, or soon will be.
func mustLock(t *testing.T, mu *locker.Mutex) *locker.Lock {
	t.Helper()
	lk, err := mu.Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return lk
}

// observe has a session that is yet to be opened report to the test.
func observe(t *testing.T, o *session.Options) observed {
	seen := observed{t, tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()}
	o.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(seen.spans))
	o.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(seen.metrics))
	return seen
}

// open starts a session and closes it with the test, link healed or not.
func open(t testing.TB, cli *clientv3.Client, o session.Options) *session.Session {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	sess, err := session.New(deadline(t), cli, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = sess.Close(ctx)
	})
	return sess
}

type result struct {
	lk  *locker.Lock
	err error
}

// soon is a context that ends while the test looks on.
func soon(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// observed is what one session reports.
type observed struct {
	t       *testing.T
	spans   *tracetest.SpanRecorder
	metrics *sdkmetric.ManualReader
}

// points are all data points but the session's: "name attributes" → value, or
// how many for a histogram.
func (o observed) points() map[string]int64 {
	o.t.Helper()
	var all metricdata.ResourceMetrics
	if err := o.metrics.Collect(context.Background(), &all); err != nil {
		o.t.Fatal(err)
	}
	points := make(map[string]int64)
	add := func(name string, attrs attribute.Set, value int64) {
		points[strings.TrimPrefix(name, "holdfast.")+" "+strings.ReplaceAll(attrs.Encoded(attribute.DefaultEncoder()), "holdfast.", "")] = value
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
