package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/session"
)

// The span of an acquisition tells when the entry stood, behind how many, and when those had gone.
func TestSpanOfAnAcquisitionTellsItsSteps(t *testing.T) {
	for name, c := range map[string]struct {
		queue func(p *process) *Queue
		want  string
	}{
		"a lock": {func(p *process) *Queue { return p.queue("x") }, "queued [1], woken []"},
		// Behind a permit its own does not fit, and no turn is ahead of its turn.
		"a permit": {func(p *process) *Queue { return p.permits(1, 1) }, "queued [1], queued [0], woken []"},
	} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				holder := c.queue(start(t, srv))
				g := mustAcquire(t, holder)
				spans := tracetest.NewSpanRecorder()
				p := start(t, srv, func(o *session.Options) {
					o.Telemetry.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
				})
				done := acquireLater(kit.Within(t, time.Minute), c.queue(p))
				time.Sleep(time.Second)
				mustHandOff(t, g)
				next := <-done
				if got := eventsOf(spans); got != c.want {
					t.Errorf("events: %s, want %s", got, c.want)
				}
				mustHandOff(t, next)
			})
		})
	}
}

// eventsOf formats the events of the spans that have begun.
func eventsOf(spans *tracetest.SpanRecorder) string {
	var all []string
	for _, span := range spans.Started() {
		for _, event := range span.Events() {
			var values []any
			for _, attr := range event.Attributes {
				values = append(values, attr.Value.AsInterface())
			}
			all = append(all, fmt.Sprint(event.Name, " ", values))
		}
	}
	return strings.Join(all, ", ")
}

// An entry that was not put is not queued.
func TestSpanOfAPutThatIsRefusedHasNoQueue(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		spans := tracetest.NewSpanRecorder()
		p := start(t, srv, func(o *session.Options) {
			o.Telemetry.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		})
		p.PlanAll("enqueue", denied)
		if g := <-acquireLater(kit.Within(t, time.Minute), p.queue("x")); g != nil {
			t.Error("it holds")
		}
		if got := eventsOf(spans); got != "" {
			t.Errorf("events: %s", got)
		}
		p.Plan(nil)
	})
}
