package requests_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

var (
	unavailable = rpctypes.ErrStopped // may have been carried out
	refused     = rpctypes.ErrTooManyRequests
	denied      = rpctypes.ErrPermissionDenied
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// reply is the result of a send: err after a time, unless its context ends before.
type reply struct {
	after time.Duration // less than 0: never
	err   error
}

var hangs = reply{after: -1}

// fakeRequests is a cluster: send i gets reply i, and all further sends hang.
type fakeRequests struct {
	t       *testing.T
	sender  *requests.Sender
	replies []reply

	mu       sync.Mutex // protects the rest
	began    time.Time
	at       []time.Duration // when each send was made
	canceled int
}

func newRequests(t *testing.T, endpoints int, replies ...reply) *fakeRequests {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: slices.Repeat([]string{"127.0.0.1:1"}, endpoints)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	sender := requests.NewSender(cli, backoff.Policy{})
	return &fakeRequests{t: t, sender: sender, replies: replies, began: time.Now()}
}

func (r *fakeRequests) send(ctx context.Context) (int, error) {
	r.mu.Lock()
	i := len(r.at)
	r.at = append(r.at, time.Since(r.began))
	reply := hangs
	if i < len(r.replies) {
		reply = r.replies[i]
	}
	r.mu.Unlock()
	if _, ok := ctx.Deadline(); ok {
		r.t.Error("a deadline would go to the server")
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	if !slices.Equal(md.Get(rpctypes.MetadataRequireLeaderKey), []string{rpctypes.MetadataHasLeader}) {
		r.t.Errorf("no leader is required: %v", md)
	}
	var answered <-chan time.Time
	if reply.after >= 0 {
		answered = time.After(reply.after)
	}
	select {
	case <-answered:
		return i, reply.err
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		r.canceled++
		return i, ctx.Err()
	}
}

func (r *fakeRequests) once(ctx context.Context, k requests.Kind) (i int, open bool, err error) {
	return requests.Once(ctx, r.sender, k, r.send)
}

// hung makes a call that no member answers, which is given up after a time, and returns when it was sent.
func (r *fakeRequests) hung(t *testing.T, k requests.Kind, after time.Duration) []time.Duration {
	r.mu.Lock()
	r.replies, r.at, r.began = nil, nil, time.Now()
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	_, _, _ = r.once(ctx, k)
	return r.at
}

// ended checks that no send is in flight, and when the sends were made.
func (r *fakeRequests) ended(sent ...time.Duration) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.at, sent) {
		r.t.Errorf("sent at %v, want %v", r.at, sent)
	}
}

// again returns when a request is sent by a Sender whose calls have all been answered: once at first, then to each
// endpoint at the first of these times, and once at each of the others.
func again(endpoints int, after ...time.Duration) []time.Duration {
	sent := []time.Duration{0}
	for i, at := range after {
		n := 1
		if i == 0 {
			n = endpoints
		}
		sent = append(sent, slices.Repeat([]time.Duration{at}, n)...)
	}
	return sent
}
