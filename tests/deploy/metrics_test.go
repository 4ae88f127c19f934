package deploy_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/lastrun"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
)

// series has the labels of each metric that Prometheus gets, by the metric's name.
type series map[string]map[string]bool

// sample matches a line of Prometheus's text format.
var (
	sample = regexp.MustCompile(`(?m)^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$`)
	label  = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
)

// scrape returns what a Prometheus server of version 3 gets, which understands names with dots, too.
func scrape(t *testing.T, registry *prometheus.Registry) series {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil)
	request.Header.Set("Accept", "text/plain;version=1.0.0;escaping=allow-utf-8")
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, request)
	all := make(series)
	for _, m := range sample.FindAllStringSubmatch(answer.Body.String(), -1) {
		if all[m[1]] == nil {
			all[m[1]] = make(map[string]bool)
		}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			all[m[1]][l[1]] = true
		}
	}
	return all
}

// exported returns the metrics of a session that has all the trouble that holdfast counts, as OpenTelemetry's
// Prometheus exporter names them.
func exported(t *testing.T) series {
	t.Helper()
	var all series
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		registry := prometheus.NewRegistry()
		exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
		if err != nil {
			t.Fatal(err)
		}
		link := srv.Link()
		sess, err := session.New(t.Context(), link.Client(), session.Options{
			Clock:  session.MonotonicClock(),
			Logger: slog.New(slog.DiscardHandler),
			Telemetry: session.Telemetry{
				MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		lock := func() *locker.Lock {
			t.Helper()
			lk, err := locker.NewMutex(sess, "x").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return lk
		}

		link.LoseReply("Txn", 1, codes.Unavailable)
		lk := lock()                                                            // holdfast.replies.ambiguous
		if err := lastrun.Record(t.Context(), lk, "1", time.Hour); err != nil { // holdfast.run.time, holdfast.run.due
			t.Error(err)
		}
		time.Sleep(20 * time.Second) // renewals

		link.Plan(func(c etcdfake.Call) etcdfake.Fate {
			return etcdfake.Fate{LoseRequest: c.Method == "Txn", Code: codes.PermissionDenied}
		})
		time.Sleep(5 * time.Second)                    // holdfast.polls.unanswered
		if err := lk.Unlock(t.Context()); err == nil { // holdfast.sweeps
			t.Error("Unlock succeeded without a permission")
		}
		link.Plan(nil)

		link.BlackHole()
		time.Sleep(20 * time.Second) // holdfast.losses
		link.Heal()
		within, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err = shard.New(sess, "x", 2).Run(within, func(ctx context.Context, s *shard.Shard) error { // holdfast.shards
			if s.Index() == 0 {
				return errors.New("broken") // holdfast.shard.failures
			}
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		lk = lock() // holdfast.held
		ctx, giveUp := context.WithCancel(t.Context())
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			_, _ = locker.NewMutex(sess, "x").Lock(ctx) // holdfast.waiting
		}()
		time.Sleep(time.Second)
		all = scrape(t, registry)
		giveUp()
		<-waited
		if err := lk.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := sess.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return all
}

// A name of OpenTelemetry in docs/telemetry.md is what the exporter makes of it in the files of deploy.
func TestExporterRenamesEveryDocumentedMetric(t *testing.T) {
	got := exported(t)
	for name, row := range documented(t) {
		if !got.has(row.exported) {
			t.Errorf("%s is not exported as %s; exported: %v", name, row.exported, got)
		}
	}
}

// has reports whether there is a metric of that name, which for a histogram is the prefix of three.
func (s series) has(name string) bool { return s[name] != nil || s[name+"_bucket"] != nil }

// documentedMetric is a row of the table in docs/telemetry.md.
type documentedMetric struct {
	exported string // the name in Prometheus
	row      string
}

// documented returns the metrics that docs/telemetry.md lists, by name.
func documented(t *testing.T) map[string]documentedMetric {
	t.Helper()
	all := make(map[string]documentedMetric)
	rows := regexp.MustCompile("(?m)^\\| `(holdfast\\.[a-z.]+)` \\| ([a-z -]+) \\| (s|\\{[a-z]+\\}) \\|.*$")
	for _, m := range rows.FindAllStringSubmatch(read(t, "docs/telemetry.md"), -1) {
		name := strings.ReplaceAll(m[1], ".", "_")
		if m[3] == "s" {
			name += "_seconds"
		}
		if m[2] == "counter" {
			name += "_total"
		}
		all[m[1]] = documentedMetric{exported: name, row: m[0]}
	}
	if len(all) < 9 {
		t.Fatalf("docs/telemetry.md: found only %d metrics", len(all))
	}
	return all
}
