package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// What Show, Events, Kick and Remove take beside the kinds of holdfast.
const (
	// LockAt is a lock under a prefix, given in place of the name, as locker.NewMutexAt and etcd's concurrency package
	// take it. "/jobs/" is another lock than "/jobs": both may be held, and one that is not used is free. List does not
	// take it. Kick and Remove tell no holders that are clients of etcd's own locks: ErrNotTold.
	LockAt holdfast.Kind = "lock prefix"
	// ElectionAt is an election under a prefix, as election.NewAt and etcd's concurrency package take it; see LockAt.
	ElectionAt holdfast.Kind = "election prefix"
)

// Options of a Client. The zero value of every field is its default.
type Options struct {
	// Namespace is that of the sessions to look at. Default "holdfast".
	Namespace string

	// Retry paces what is tried again.
	Retry backoff.Policy

	// Owner says who asks, with Kick and Remove: the holder is told, and it is recorded. Default "host:pid", at most
	// 256 bytes of UTF-8.
	Owner string

	// Auditor is told of each Kick and Remove. Default nil: they are logged with slog.Default at Warn.
	Auditor audit.Auditor
}

// Client looks at queues, and asks holders to let go. It is immutable, does no I/O when made, and is safe for
// concurrent use.
type Client struct {
	client    *clientv3.Client
	sender    *requests.Sender
	policy    backoff.Policy
	namespace string
	owner     string
	auditor   audit.Auditor
	err       error // why it cannot be used
}

// New returns a Client. A bad option or client is an error of the first call, before
// anything is sent: *holdfast.ArgumentError, *holdfast.NameError. The client is the caller's to close.
func New(cli *clientv3.Client, o Options) *Client {
	c := &Client{client: cli, owner: cmp.Or(o.Owner, thisProcess()), auditor: o.Auditor, policy: o.Retry}
	if c.namespace, c.err = o.validate(cli); c.err == nil {
		c.sender = requests.NewSender(cli, c.policy)
	}
	return c
}

// validate checks the options, and returns the namespace in force.
func (o Options) validate(cli *clientv3.Client) (namespace string, err error) {
	if cli == nil || cli.KV == nil || cli.Watcher == nil || cli.Lease == nil {
		return "", &holdfast.ArgumentError{Argument: "cli", Reason: "is nil, or lacks its KV, Watcher or Lease"}
	}
	if err = retry.CheckPauses("Options.Retry", o.Retry.Initial, o.Retry.Max); err != nil {
		return "", err
	}
	if bad := badText(o.Owner); bad != "" {
		return "", &holdfast.ArgumentError{Argument: "Options.Owner", Reason: bad}
	}
	return names.Namespace(o.Namespace)
}

// thisProcess is the default of Options.Owner.
func thisProcess() string {
	host, _ := os.Hostname() // unknown is as good as empty here
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// usable reports why nothing can be asked for, or nil.
func (c *Client) usable(ctx context.Context) error {
	switch {
	case c == nil || c.err == nil && c.sender == nil:
		return &holdfast.ArgumentError{Argument: "receiver", Reason: "is a zero value: make it with admin.New"}
	case c.err != nil:
		return c.err
	case ctx == nil:
		return &holdfast.ArgumentError{Argument: "ctx", Reason: "is nil"}
	default:
		return retry.ContextErr(ctx)
	}
}

// find returns the queue of a name in the namespace, or of a prefix.
func (c *Client) find(kind holdfast.Kind, name string) (layout.Keyspace, error) {
	of, foreign := prefixed[kind]
	switch {
	case !foreign:
		if err := errors.Join(checkKind(kind), names.Check(kind, name)); err != nil {
			return layout.Keyspace{}, err
		}
		return layout.Named(c.namespace, kind, name), nil
	case name == "":
		return layout.Keyspace{}, &holdfast.NameError{Kind: string(kind), Name: name, Reason: "is empty"}
	}
	return layout.At(c.namespace, of, name), nil
}

// prefixed says what each kind of prefix is of.
var prefixed = map[holdfast.Kind]holdfast.Kind{LockAt: holdfast.KindLock, ElectionAt: holdfast.KindElection}

func checkKind(k holdfast.Kind) error {
	if !slices.Contains(layout.Kinds, k) {
		reason := fmt.Sprintf("is %q, which is none of %q", string(k), layout.Kinds)
		return &holdfast.ArgumentError{Argument: "kind", Reason: reason}
	}
	return nil
}

// notSemaphore refuses what a semaphore does not have.
func notSemaphore(k holdfast.Kind, what string) error {
	if k == holdfast.KindSemaphore {
		return &holdfast.ArgumentError{Argument: "kind", Reason: what}
	}
	return nil
}

// read puts reads to etcd as one linearizable Txn.
func (c *Client) read(ctx context.Context, ops ...clientv3.Op) (requests.Reply, error) {
	return requests.Txn{Then: ops}.Ask(ctx, c.sender, requests.Read)
}
