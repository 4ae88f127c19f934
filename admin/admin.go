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
	"github.com/holdfast-go/holdfast/internal/attempt"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
	"github.com/holdfast-go/holdfast/internal/txns"
)

// Kind is what a name is of. The lock, the tree lock, the semaphore and the election of one name have nothing in
// common.
type Kind string

const (
	// Lock is a locker.Mutex or locker.RWMutex, also of a locker.Set.
	Lock Kind = "lock"
	// Tree is a locker.TreeMutex. It has an entry in the queue of its path, and a reader's in that of each path above.
	Tree Kind = "tree"
	// Election is an election.Election.
	Election Kind = "election"
	// Semaphore is a locker.Semaphore. Show and List take it; Watch does not, and its holders cannot be kicked.
	Semaphore Kind = "sem"
)

// Options of a Client. The zero value of every field is its default.
type Options struct {
	// Namespace is that of the sessions to look at. Default "holdfast".
	Namespace string

	// Retry paces what is tried again, and bounds each request by its Attempt: default 4 s, less than 5 s.
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
	sender    *attempt.Sender
	policy    backoff.Policy
	namespace string
	owner     string
	auditor   audit.Auditor
	err       error // why it cannot be used
}

// New returns a Client. A nil o means all defaults. A bad option or client is an error of the first call, before
// anything is sent: *holdfast.ArgumentError, *holdfast.NameError. The client is the caller's to close.
func New(cli *clientv3.Client, o *Options) *Client {
	if o == nil {
		o = &Options{}
	}
	c := &Client{client: cli, owner: cmp.Or(o.Owner, thisProcess()), auditor: o.Auditor}
	if c.policy, c.namespace, c.err = o.validate(cli); c.err == nil {
		c.sender = attempt.New(cli, c.policy)
	}
	return c
}

// validate returns the options in force.
func (o *Options) validate(cli *clientv3.Client) (policy backoff.Policy, namespace string, err error) {
	if cli == nil || cli.KV == nil || cli.Watcher == nil || cli.Lease == nil {
		return policy, "", &holdfast.ArgumentError{Argument: "cli", Reason: "is nil, or lacks its KV, Watcher or Lease"}
	}
	if policy, err = attempt.Policy("Options.Retry", o.Retry); err != nil {
		return policy, "", err
	}
	if bad := badText(o.Owner); bad != "" {
		return policy, "", &holdfast.ArgumentError{Argument: "Options.Owner", Reason: bad}
	}
	namespace, err = names.Namespace(o.Namespace)
	return policy, namespace, err
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
		return backoff.ContextErr(ctx)
	}
}

// finder returns the queue that a caller has named, or what is wrong with the name.
type finder func() (layout.Queue, error)

// named returns the queue of a name in the namespace.
func (c *Client) named(kind Kind, name string) (layout.Queue, error) {
	if err := errors.Join(kind.check(), names.Check(string(kind), name)); err != nil {
		return layout.Queue{}, err
	}
	return layout.Named(c.namespace, string(kind), name), nil
}

// foreign returns the queue of a prefix as etcd's concurrency package takes it.
func foreign(kind Kind, prefix string) (layout.Queue, error) {
	err := errors.Join(kind.check(), kind.notSemaphore("is Semaphore: there are none under foreign prefixes"))
	if err != nil {
		return layout.Queue{}, err
	}
	if !slices.Contains(prefixed, kind) {
		reason := fmt.Sprintf("is %q, which has no prefixes", kind)
		return layout.Queue{}, &holdfast.ArgumentError{Argument: "kind", Reason: reason}
	}
	if prefix == "" {
		return layout.Queue{}, &holdfast.NameError{Kind: string(kind) + " prefix", Name: prefix, Reason: "is empty"}
	}
	return layout.At(string(kind), prefix), nil
}

// kinds are all kinds, and prefixed are those that etcd's own clients have as well.
var (
	kinds    = []Kind{Lock, Tree, Semaphore, Election}
	prefixed = []Kind{Lock, Election}
)

func (k Kind) check() error {
	if !slices.Contains(kinds, k) {
		return &holdfast.ArgumentError{Argument: "kind", Reason: fmt.Sprintf("is %q, which is none of %q", string(k), kinds)}
	}
	return nil
}

// notSemaphore refuses what a semaphore does not have.
func (k Kind) notSemaphore(what string) error {
	if k == Semaphore {
		return &holdfast.ArgumentError{Argument: "kind", Reason: what}
	}
	return nil
}

// read puts reads to etcd as one linearizable Txn.
func (c *Client) read(ctx context.Context, ops ...clientv3.Op) (txns.Reply, error) {
	return txns.Txn{Then: ops}.Ask(ctx, c.sender, attempt.Read)
}
