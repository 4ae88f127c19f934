package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast"
)

// Ran reports when the job of a name ran last, whichever process ran it, and when its next run is overdue; a zero due
// is not reported.
func (t *Telemetry) Ran(kind holdfast.Kind, name string, at, due time.Time) {
	ctx := context.Background()
	attrs := []attribute.KeyValue{kindKey.String(string(kind)), nameKey.String(name)}
	if t.extra != nil {
		attrs = append(attrs, t.extra(kind, name)...)
	}
	t.ran.Record(ctx, seconds(at), metric.WithAttributes(attrs...))
	if !due.IsZero() {
		t.due.Record(ctx, seconds(due), metric.WithAttributes(attrs...))
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
