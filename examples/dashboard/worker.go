package main

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/lastrun"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
)

// worker stands for a process, with a session and metrics of its own.
type worker struct {
	name     string
	network  *network
	cli      *clientv3.Client
	sess     *session.Session
	registry *prometheus.Registry // what Prometheus gets

	ended sync.WaitGroup // of load
}

func newWorker(ctx context.Context, endpoints []string, name string, ttl time.Duration) (*worker, error) {
	w := &worker{name: name, registry: prometheus.NewRegistry(), network: newNetwork()}
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(w.registry))
	if err != nil {
		return nil, err
	}
	cfg := session.ClientConfig(endpoints...)
	cfg.DialOptions = append(cfg.DialOptions, w.network.dialOptions()...)
	if w.cli, err = session.NewClient(ctx, cfg); err != nil {
		return nil, err
	}
	if w.sess, err = session.New(ctx, w.cli, session.Options{
		Owner: name,
		TTL:   ttl,
		Telemetry: session.Telemetry{
			MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)),
		},
		Logger: slog.New(slog.DiscardHandler), // the rows tell it
	}); err != nil {
		return nil, errors.Join(err, w.cli.Close())
	}
	w.ended.Go(func() { w.lead(ctx) })
	w.ended.Go(func() { w.work(ctx) })
	w.ended.Go(func() { w.share(ctx) })
	return w, nil
}

// close waits for the work, whose context has to end before.
func (w *worker) close(ctx context.Context) error {
	w.network.setCut(false)
	w.ended.Wait()
	return errors.Join(w.sess.Close(ctx), w.cli.Close())
}

func (w *worker) mutex(name string) *locker.Mutex {
	return locker.NewMutex(w.sess, "examples/dashboard/"+name)
}

// lead is a candidate, until ctx ends.
func (w *worker) lead(ctx context.Context) {
	_ = election.New(w.sess, "examples/dashboard").With(election.Options{Value: w.name}).Run(ctx,
		func(ctx context.Context, _ *election.Term) error {
			<-ctx.Done()
			return nil
		})
}

// work waits for a lock that the others want, too, and tries another, again and again. What fails is counted.
func (w *worker) work(ctx context.Context) {
	something := func(ctx context.Context, _ *locker.Lock) error { return pause(ctx, rand.N(50*time.Millisecond)) }
	recorded := func(ctx context.Context, lk *locker.Lock) error {
		return lastrun.Record(ctx, lk, time.Now().UTC().Format("15:04"), time.Minute)
	}
	for ctx.Err() == nil {
		_ = w.mutex("report").Do(ctx, something)
		_ = w.mutex("minutely").Do(ctx, recorded)
		_ = w.mutex("invoice").TryDo(ctx, something)
		_ = pause(ctx, rand.N(100*time.Millisecond))
	}
}

var errShard = errors.New("this shard fails now and then")

// share does its part of six shards, until ctx ends. One of them fails now and then.
func (w *worker) share(ctx context.Context) {
	for ctx.Err() == nil { // Run ends if etcd refuses its requests
		_ = shard.New(w.sess, "examples/dashboard", 6).Run(ctx, func(ctx context.Context, s *shard.Shard) error {
			if s.Index() == 0 && pause(ctx, rand.N(time.Second)) == nil {
				return errShard
			}
			<-ctx.Done()
			return nil
		})
		_ = pause(ctx, time.Second)
	}
}

// await waits until the session is in one of the states.
func (w *worker) await(ctx context.Context, states ...holdfast.State) error {
	changed := make(chan struct{}, 1)
	defer w.sess.Subscribe(func(session.Event) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	for !slices.Contains(states, w.sess.State()) {
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// total returns the value of a counter without attributes, as Prometheus gets it.
func (w *worker) total(counter string) (value float64) {
	families, _ := w.registry.Gather() // what it has
	for _, family := range families {
		if family.GetName() == counter {
			for _, m := range family.GetMetric() {
				value += m.GetCounter().GetValue()
			}
		}
	}
	return value
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
