package queuetest

import (
	"testing"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/layout"
)

// LimitX is the key of the limit of semaphore x.
const LimitX = "holdfast/sem/x/@limit"

// SetLimit puts the limit of semaphore x.
func SetLimit(t *testing.T, srv *etcdfake.Server, limit int) {
	t.Helper()
	if _, err := srv.Client(t).Put(t.Context(), LimitX, layout.Limit{Permits: limit}.String()); err != nil {
		t.Fatal(err)
	}
}
