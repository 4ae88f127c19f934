package page

import (
	"net/http"

	"github.com/holdfast-go/holdfast/election"
)

var (
	jobs chan struct{ Key, Result string }
	mux  *http.ServeMux
	o    *election.Observer
)

func show(election.Leader, error) {}
