package session_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/session"
)

func TestBadInputIsRefusedBeforeAnyRPC(t *testing.T) {
	start(t, func(t *testing.T, c *cluster) {
		cli := c.dial(t)
		without := func(remove func(cli *clientv3.Client)) *clientv3.Client {
			part := clientv3.NewCtxClient(t.Context())
			part.KV, part.Lease, part.Watcher = cli.KV, cli.Lease, cli.Watcher
			remove(part)
			return part
		}
		byHand := clientv3.Client{KV: cli.KV, Lease: cli.Lease, Watcher: cli.Watcher}
		for name, tc := range map[string]struct {
			cli      *clientv3.Client
			opts     session.Options
			argument string // of the ArgumentError; empty: a NameError
		}{
			"no client":           {nil, session.Options{}, "cli"},
			"hollow client":       {clientv3.NewCtxClient(t.Context()), session.Options{}, "cli"},
			"client by hand":      {&byHand, session.Options{}, "cli"},
			"no KV":               {without(func(cli *clientv3.Client) { cli.KV = nil }), session.Options{}, "cli"},
			"no Lease":            {without(func(cli *clientv3.Client) { cli.Lease = nil }), session.Options{}, "cli"},
			"no Watcher":          {without(func(cli *clientv3.Client) { cli.Watcher = nil }), session.Options{}, "cli"},
			"TTL too short":       {cli, session.Options{TTL: 999 * time.Millisecond}, "Options.TTL"},
			"TTL negative":        {cli, session.Options{TTL: -time.Second}, "Options.TTL"},
			"TTL too long":        {cli, session.Options{TTL: 601 * time.Second}, "Options.TTL"},
			"TTL not whole":       {cli, session.Options{TTL: 1500 * time.Millisecond}, "Options.TTL"},
			"margin negative":     {cli, session.Options{DriftMargin: -1}, "Options.DriftMargin"},
			"margin too small":    {cli, session.Options{DriftMargin: 199 * time.Millisecond}, "Options.DriftMargin"},
			"margin too large":    {cli, session.Options{DriftMargin: 4 * time.Second}, "Options.DriftMargin"},
			"close timeout":       {cli, session.Options{CloseTimeout: -1}, "Options.CloseTimeout"},
			"retry policy":        {cli, session.Options{Retry: backoff.Policy{Initial: -1}}, "Options.Retry.Initial"},
			"short lock delay":    {cli, session.Options{LockDelay: 199 * time.Millisecond}, "Options.LockDelay"},
			"long lock delay":     {cli, session.Options{LockDelay: 61 * time.Second}, "Options.LockDelay"},
			"long owner":          {cli, session.Options{Owner: strings.Repeat("x", 257)}, "Options.Owner"},
			"namespace segmented": {cli, session.Options{Namespace: "a/b"}, ""},
			"namespace reserved":  {cli, session.Options{Namespace: "@a"}, ""},
			"namespace too long":  {cli, session.Options{Namespace: strings.Repeat("x", 65)}, ""},
		} {
			_, err := session.New(t.Context(), tc.cli, tc.opts)
			var argument *holdfast.ArgumentError
			var bad *holdfast.NameError
			switch {
			case tc.argument == "" && !errors.As(err, &bad):
				t.Errorf("%s: %v, want a NameError", name, err)
			case tc.argument != "" && (!errors.As(err, &argument) || argument.Argument != tc.argument):
				t.Errorf("%s: %v, want an ArgumentError for %s", name, err, tc.argument)
			}
		}
		_, err := session.New(nil, cli, session.Options{}) //nolint:staticcheck // a nil context is the bad input here
		var argument *holdfast.ArgumentError
		if !errors.As(err, &argument) || argument.Argument != "ctx" {
			t.Errorf("nil ctx: %v", err)
		}
		if n := c.link.Count(); len(n) != 0 {
			t.Errorf("RPCs were sent: %v", n)
		}
	})
}
