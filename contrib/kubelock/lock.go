package kubelock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

const (
	defaultNamespace = "holdfast"
	defaultTimeout   = 2 * time.Second
)

// leases is the resource that errors name: client-go keeps its records in objects of this kind.
var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// errNoRecord is the error of an Update before the first Get or Create.
var errNoRecord = errors.New("update before Get or Create")

// Options are the options of a Lock. The zero value of each field is its default.
type Options struct {
	// Namespace is the first segment of the keys in etcd, and the one whose epoch counts: that of session.Options.
	// Default "holdfast".
	Namespace string

	// Timeout bounds each request. Default 2 s. It must be shorter than LeaseDuration − RenewDeadline − RetryPeriod,
	// which is 3 s with client-go's defaults. When renewals fail, client-go with ReleaseOnCancel asks for the record
	// once more before it cancels the context of the work. If that takes longer, the next leader starts before the work
	// has ended.
	Timeout time.Duration

	// Logger gets an event, at Info, when a leadership begins or ends. Default slog.Default().
	Logger *slog.Logger
}

// Lock keeps the record of client-go's leader election in etcd. It is a resourcelock.Interface, whose methods are for
// one LeaderElector at a time; Term may be called from anywhere.
type Lock struct {
	cli            *clientv3.Client
	opts           Options
	name, identity string
	record, holder string // keys
	clock          func() time.Duration

	mu       sync.Mutex // protects the fields below
	revision int64      // of the record as last seen; 0: none was seen
	term     *Term      // nil: not leading, as far as is known
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns the lock of that name for a candidate. identity must differ between all candidates, such as the host
// name and a UUID: of two with the same identity each takes the record from the other. A Lock has no session. It needs
// only a client, and does not close it. Errors are *holdfast.ArgumentError and *holdfast.NameError.
func New(cli *clientv3.Client, name, identity string, o Options) (*Lock, error) {
	o.Namespace = cmp.Or(o.Namespace, defaultNamespace)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case cli == nil || cli.KV == nil:
		return nil, &holdfast.ArgumentError{Argument: "cli", Reason: "is nil, or lacks its KV"}
	case identity == "":
		return nil, &holdfast.ArgumentError{Argument: "identity", Reason: "is empty"}
	case strings.Contains(o.Namespace, "/"):
		return nil, &holdfast.ArgumentError{Argument: "Options.Namespace", Reason: "is not a single segment"}
	case o.Timeout < 0:
		return nil, &holdfast.ArgumentError{Argument: "Options.Timeout", Reason: "is negative"}
	}
	if err := locker.CheckName(name); err != nil {
		return nil, err
	}
	key := o.Namespace + "/kube/" + name
	return &Lock{
		cli: cli, opts: o, name: name, identity: identity, record: key, holder: key + "/@", clock: session.SystemClock(),
	}, nil
}

// Get returns the record and its bytes. If there is none, the error is a NotFound of apimachinery.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	resp, err := l.commit(ctx, "read", nil, clientv3.OpGet(l.record), clientv3.OpGet(l.holder))
	if err != nil {
		return nil, nil, err
	}
	record, holder := resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs
	if len(record) == 0 {
		l.see(0, 0)
		return nil, nil, apierrors.NewNotFound(leases, l.name)
	}
	var ler resourcelock.LeaderElectionRecord
	if err := json.Unmarshal(record[0].Value, &ler); err != nil {
		return nil, nil, fmt.Errorf("leader record %q in etcd is not one: %w; delete the key", l.record, err)
	}
	var token int64
	if len(holder) > 0 && ler.HolderIdentity == l.identity {
		token = holder[0].ModRevision
	}
	l.see(record[0].ModRevision, token)
	return &ler, record[0].Value, nil
}

// see notes the revisions of the record and, if it is that of this candidate, of its holder. The term ends unless it is
// still in etcd.
func (l *Lock) see(record, holder int64) {
	term := l.Term()
	over := term != nil && term.token.Revision() != holder
	l.mu.Lock()
	l.revision = record
	if over {
		l.term = nil
	}
	l.mu.Unlock()
	if over {
		term.lose(holdfast.CauseEntryDeleted)
	}
}

// Create writes the first record, and begins a term. If there is one by now, the error is an AlreadyExists of
// apimachinery.
func (l *Lock) Create(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	err := l.acquire(ctx, ler, clientv3.Compare(clientv3.CreateRevision(l.record), "=", 0))
	if apierrors.IsConflict(err) {
		return apierrors.NewAlreadyExists(leases, l.name)
	}
	return err
}

// Update replaces the record that was last seen: it renews the term, begins one, or releases it if ler has no
// HolderIdentity. It reads nothing before. If the record has changed, or what is to be released is another candidate's,
// or the former Update was not answered, the error is a Conflict of apimachinery, and the next call must be Get.
func (l *Lock) Update(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	revision, term := l.revision, l.term
	l.mu.Unlock()
	if revision == 0 {
		return fmt.Errorf("leader record %q: %w", l.record, errNoRecord)
	}
	same := clientv3.Compare(clientv3.ModRevision(l.record), "=", revision)
	switch {
	case ler.HolderIdentity == "":
		return l.release(ctx, ler, same)
	case ler.HolderIdentity != l.identity:
		reason := fmt.Sprintf("has HolderIdentity %q, but the Lock is that of %q", ler.HolderIdentity, l.identity)
		return &holdfast.ArgumentError{Argument: "ler", Reason: reason}
	case term != nil && term.Check() == nil:
		return l.renew(ctx, ler, term, same)
	}
	return l.acquire(ctx, ler, same)
}

func (l *Lock) acquire(ctx context.Context, ler resourcelock.LeaderElectionRecord, same clientv3.Cmp) error {
	sent := l.clock()
	resp, err := l.commit(ctx, "acquire", []clientv3.Cmp{same},
		l.put(ler), clientv3.OpPut(l.holder, l.identity), clientv3.OpGet(l.opts.Namespace+"/epoch"))
	if err != nil {
		return err
	}
	var epoch int64
	if kvs := resp.Responses[2].GetResponseRange().Kvs; len(kvs) > 0 {
		if epoch, err = strconv.ParseInt(string(kvs[0].Value), 10, 64); err != nil {
			return fmt.Errorf("leader record %q: the epoch of namespace %q: %w", l.record, l.opts.Namespace, err)
		}
	}
	token, err := holdfast.NewToken(epoch, resp.Header.Revision)
	if err != nil {
		return fmt.Errorf("leader record %q: %w", l.record, err)
	}
	term := &Term{lock: l, token: token}
	term.renewed(sent, ler)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision, l.term = resp.Header.Revision, term
	return nil
}

func (l *Lock) renew(ctx context.Context, ler resourcelock.LeaderElectionRecord, term *Term, same clientv3.Cmp) error {
	sent := l.clock()
	resp, err := l.commit(ctx, "renew", append(term.Holding(), same), l.put(ler))
	if err != nil {
		return err
	}
	term.renewed(sent, ler)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision = resp.Header.Revision
	return nil
}

func (l *Lock) release(ctx context.Context, ler resourcelock.LeaderElectionRecord, same clientv3.Cmp) error {
	l.mu.Lock()
	term := l.term
	l.term = nil
	l.mu.Unlock()
	if term != nil {
		term.release() // before others may lead
	}
	// The record last seen may be another candidate's: client-go reads it anew before it releases, and still goes by what
	// it had observed before.
	ours := clientv3.Compare(clientv3.Value(l.holder), "=", l.identity)
	resp, err := l.commit(ctx, "release", []clientv3.Cmp{same, ours}, l.put(ler), clientv3.OpDelete(l.holder))
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision = resp.Header.Revision
	return nil
}

// put writes the record.
func (l *Lock) put(ler resourcelock.LeaderElectionRecord) clientv3.Op {
	value, err := json.Marshal(ler)
	if err != nil {
		panic(err) // a struct of strings, numbers and times
	}
	return clientv3.OpPut(l.record, string(value))
}

// commit sends one Txn, bounded by Timeout. The error is a Conflict if a comparison fails.
func (l *Lock) commit(
	ctx context.Context, verb string, cmps []clientv3.Cmp, ops ...clientv3.Op,
) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	resp, err := l.cli.Txn(ctx).If(cmps...).Then(ops...).Commit()
	if err != nil {
		err = retry.WithConnection(l.cli.ActiveConnection(), err)
		return nil, fmt.Errorf("%s leader record %q: %w", verb, l.record, err)
	}
	if !resp.Succeeded {
		return nil, apierrors.NewConflict(leases, l.name, fmt.Errorf("%s leader record %q: it has changed", verb, l.record))
	}
	return resp, nil
}

// Term returns the present term, or nil while another candidate leads. Ask for it for each piece of work: a candidate
// that loses its term and wins the next one has another token. An etcdfence.Writer of a nil Term refuses to write.
func (l *Lock) Term() *Term {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

// RecordEvent logs the begin and the end of a leadership.
func (l *Lock) RecordEvent(event string) {
	l.opts.Logger.Info("holdfast: leader election: "+event, "name", l.name, "identity", l.identity)
}

// Identity returns the identity given to New.
func (l *Lock) Identity() string { return l.identity }

// Describe names the record, for logs.
func (l *Lock) Describe() string { return "etcd key " + l.record }
