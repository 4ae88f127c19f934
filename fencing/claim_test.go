package fencing_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

func TestPresentReturnsTheClaimOfAHolder(t *testing.T) {
	lost := &holdfast.LostError{}
	holds := func(name string, token holdfast.Token, check error) *holder {
		return &holder{name: name, token: token, check: func() error { return check }}
	}
	for name, c := range map[string]struct {
		h    fencing.Holder
		want error
	}{
		"held":           {holds("job", 7, nil), nil},
		"lost":           {holds("job", 7, lost), lost},
		"suspended":      {holds("job", 7, holdfast.ErrSuspended), holdfast.ErrSuspended},
		"no token":       {holds("job", 0, nil), holdfast.ErrNoToken},
		"negative token": {holds("job", -7, nil), holdfast.ErrNoToken},
		"empty name":     {holds("", 7, nil), fencing.ErrBadClaim},
		"long name":      {holds(strings.Repeat("x", fencing.MaxName+1), 7, nil), fencing.ErrBadClaim},
		"nil":            {nil, holdfast.ErrNoToken},
		"nil pointer":    {(*holder)(nil), holdfast.ErrNoToken},
	} {
		got, err := fencing.Present(c.h)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error is %v, want %v", name, err, c.want)
		}
		var want fencing.Claim
		if c.want == nil {
			want = claim(7)
		}
		if got != want {
			t.Errorf("%s: claim is %v, want %v", name, got, want)
		}
	}
}
