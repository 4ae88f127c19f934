//go:build linux

package cmd

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/etcdtest"
	"github.com/holdfast-go/holdfast/fencing"
)

func TestEpochIsShownAndRaisedAndNeverLowered(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"epoch"}, 0, "is 0\n"},
		{[]string{"epoch", "bump", "2"}, 0, "is 2\n"},
		{[]string{"epoch", "bump", "1"}, 0, "is 2\n"},
		{[]string{"epoch", "-o", "json"}, 0, `{"namespace":"holdfast","epoch":2}`},
		{[]string{"epoch", "--namespace", "other", "-o", "json"}, 0, `{"namespace":"other","epoch":0}`},
		{[]string{"epoch", "bump"}, 64, ""},
		{[]string{"epoch", "bump", "x"}, 64, ""},
		{[]string{"epoch", "bump", "0"}, 64, ""},
		{[]string{"epoch", "bump", "30000"}, 1, ""}, // too large a step
		{[]string{"epoch", "dump", "1"}, 64, ""},
	} {
		p := holdfast(t, srv.Endpoints(), c.args...).exits(c.code)
		if out := p.stdout.String(); !strings.Contains(out, c.want) || (c.want == "") != (out == "") {
			t.Errorf("%v prints %q, want %q", c.args, out, c.want)
		}
	}
	if n, err := fencing.Epoch(deadline(t), srv.Client(t), ""); n != 2 || err != nil {
		t.Errorf("the epoch in etcd is %d, %v", n, err)
	}
	if lk := hold(t, open(t, srv.Client(t), ""), "x"); lk.Token().Epoch() != 2 {
		t.Errorf("the next token has epoch %d", lk.Token().Epoch())
	}
}
