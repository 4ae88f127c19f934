package shard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
)

// meter collects the metrics of one member.
type meter struct {
	t      *testing.T
	reader *sdkmetric.ManualReader
}

func metered(t *testing.T, srv *etcdfake.Server) (*kit.Process, meter) {
	m := meter{t, sdkmetric.NewManualReader()}
	return kit.Start(t, srv, func(o *session.Options) {
		o.Telemetry.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader))
	}), m
}

// sums returns a metric's values that are not zero, by the value of its attribute.
func (m meter) sums(name string) map[string]int {
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(m.t.Context(), &all); err != nil {
		m.t.Fatal(err)
	}
	found := make(map[string]int)
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			if sum, ok := metric.Data.(metricdata.Sum[int64]); ok && metric.Name == name {
				for _, p := range sum.DataPoints {
					if p.Value != 0 {
						found[p.Attributes.ToSlice()[0].Value.AsString()] = int(p.Value)
					}
				}
			}
		}
	}
	return found
}

func (m meter) expect(what, name string, want map[string]int) {
	m.t.Helper()
	if got := m.sums(name); !maps.Equal(got, want) {
		m.t.Errorf("%s: %s is %v, want %v", what, name, got, want)
	}
}

func TestShardsAreCountedByState(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		const name, drain = "holdfast.shards", 10 * time.Second
		f := newFleet(t, srv, 8)
		pa, ma := metered(t, srv)
		pb, mb := metered(t, srv)
		a := f.startWith(pa, "a", f.work("a", drain))
		time.Sleep(settled)
		ma.expect("alone", name, map[string]int{"owned": 8})
		b := f.startWith(pb, "b", f.work("b", 0))
		time.Sleep(settled)
		ma.expect("functions drain", name, map[string]int{"owned": 8})
		mb.expect("functions of the other drain", name, map[string]int{"waiting": 4})
		time.Sleep(drain)
		ma.expect("both", name, map[string]int{"owned": 4})
		mb.expect("both", name, map[string]int{"owned": 4})
		srv.Revoke(b.Sess.Lease())
		time.Sleep(drain + 2*settled)
		ma.expect("after a loss", name, map[string]int{"owned": 4})
		mb.expect("after a loss", name, map[string]int{"owned": 4})
		a.stop()
		b.stop()
		ma.expect("after Run", name, map[string]int{})
		mb.expect("after Run", name, map[string]int{})
		ma.expect("all went well", "holdfast.shard.failures", map[string]int{})
	})
}

func TestShardsThatNoMemberHasRoomForAreCounted(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		p, m := metered(t, srv)
		a := f.startWith(p, "a", f.work("a", 0), withCapacity(shard.Capacity{MaxShards: 3}))
		time.Sleep(settle / 2)
		m.total("it settles, and may have room for all", "holdfast.shards.unplaced", 0)
		time.Sleep(settled)
		m.total("a limit", "holdfast.shards.unplaced", 5)
		must(t, a.shards.Update(t.Context(), shard.Capacity{OutOfService: true}))
		time.Sleep(settled)
		m.total("out of service", "holdfast.shards.unplaced", 8)
		must(t, a.shards.Update(t.Context(), shard.Capacity{}))
		time.Sleep(settled)
		m.total("room for all", "holdfast.shards.unplaced", 0)
	})
}

func TestFailuresOfFunctionsAreCounted(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 3)
		p, m := metered(t, srv)
		release := make(chan struct{})
		failed := make(map[string]bool)
		r := f.startWith(p, "a", func(ctx context.Context, s *shard.Shard) error {
			f.mu.Lock()
			again := failed[fmt.Sprint(s.Index())]
			failed[fmt.Sprint(s.Index())] = true
			f.mu.Unlock()
			switch {
			case s.Index() == 0 && !again:
				return errors.New("broken")
			case s.Index() == 1:
				time.Sleep(time.Minute)
				panic("out of order")
			case s.Index() == 2:
				<-release
			}
			<-ctx.Done()
			return ctx.Err()
		}, func(o *shard.Options) { o.DrainTimeout = 10 * time.Second })
		<-r.done
		m.expect("afterwards", "holdfast.shard.failures", map[string]int{"error": 1, "panic": 1, "not drained": 1})
		close(release)
	})
}

// The difference of the three is the shards without an owner, which no member may wait for.
func TestNumberOfShardsAndThoseReservedAreReported(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		f := newFleet(t, srv, 8)
		pa, ma := metered(t, srv)
		a := f.startWith(pa, "a", f.work("a", 0))
		b := f.start("b", 0, withRejoin)
		time.Sleep(settled)
		ma.total("both", "holdfast.shards.number", 8)
		ma.total("both", "holdfast.shards.reserved", 0)
		b.stop()
		time.Sleep(settled)
		ma.total("one is absent", "holdfast.shards.reserved", 4)
		time.Sleep(2 * rejoin)
		ma.total("it does not come back", "holdfast.shards.reserved", 0)
		a.stop()
		ma.total("after Run", "holdfast.shards.number", 0)
	})
}

// total compares a metric without attributes, which must exist.
func (m meter) total(what, name string, want int64) {
	m.t.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(m.t.Context(), &all); err != nil {
		m.t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			if sum, ok := metric.Data.(metricdata.Sum[int64]); ok && metric.Name == name {
				if len(sum.DataPoints) != 1 || sum.DataPoints[0].Value != want {
					m.t.Errorf("%s: %s is %v, want %d", what, name, sum.DataPoints, want)
				}
				return
			}
		}
	}
	m.t.Errorf("%s: there is no %s", what, name)
}
