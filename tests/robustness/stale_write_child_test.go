package robustness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/fencing/grpcfence"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/internal/fence"
	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// staleWriter is the name of a child that writes to each guarded store under a separate
// lock. It ignores Check, writes until it is refused as stale, and then acquires the
// lock again.
const staleWriter = "stale writer"

// guardedStores are the ways to write. Each key is the last segment of the lock's name,
// of the resource, and of the key that is written.
var guardedStores = map[string]func(w *writerProcess, h fencing.Holder, lane string) func(ctx context.Context) error{
	// A Txn that compares the entry of the lock.
	"writer": func(_ *writerProcess, h fencing.Holder, lane string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := etcdfence.NewWriter(h).Put(ctx, "data/"+lane, h.Token().String())
			return err
		}
	},
	// A mark in etcd.
	"marks": func(w *writerProcess, h fencing.Holder, lane string) func(context.Context) error {
		return func(ctx context.Context) error {
			return w.commit(ctx, lane, fencing.Claim{Name: lane, Token: h.Token()})
		}
	},
	// A mark in etcd, raised by a server that is paused together with the client.
	"replica": func(w *writerProcess, h fencing.Holder, lane string) func(context.Context) error {
		return func(ctx context.Context) error { return w.put(fencing.NewContext(ctx, h), w.replica.URL+"/"+lane) }
	},
	// A memfence.Store in the process of the test, over HTTP and gRPC.
	"http": func(w *writerProcess, h fencing.Holder, lane string) func(context.Context) error {
		return func(ctx context.Context) error { return w.put(fencing.NewContext(ctx, h), w.job.HTTP+"/"+lane) }
	},
	"grpc": func(w *writerProcess, h fencing.Holder, lane string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := w.grpc.Check(fencing.NewContext(ctx, h), &grpc_health_v1.HealthCheckRequest{Service: lane})
			return err
		}
	},
}

// A writerJob is the argument of runStaleWriter.
type writerJob struct {
	Endpoints  []string
	Pair       string // the first segment of its locks' names
	HTTP, GRPC string // addresses of the test's servers
}

// A writerEvent is a report of the child on a store.
type writerEvent struct {
	Store string
	What  string         // "wrote" at the first write with a token, or "stale"
	Token holdfast.Token `json:",omitzero"`
	Err   string         // the writer failed otherwise

	// If stale: how many writes were acknowledged, and how many had no reply.
	Acknowledged, Unknown int
}

type writerProcess struct {
	job     writerJob
	sess    *session.Session
	marks   *etcdfence.Marks
	replica *httptest.Server
	client  *http.Client
	grpc    grpc_health_v1.HealthClient
	parent  *child.Parent[writerEvent]
}

func runStaleWriter(ctx context.Context, _ string, j writerJob, parent *child.Parent[writerEvent]) error {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // refused writes are logged, and stderr fails the test
	cli, err := clientv3.New(clientv3.Config{Endpoints: j.Endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	w := &writerProcess{job: j, parent: parent, client: &http.Client{Transport: &httpfence.Transport{}}}
	if w.sess, err = session.New(ctx, cli, session.Options{TTL: childTTL}); err != nil {
		return err
	}
	if w.marks, err = etcdfence.NewMarks(cli, etcdfence.MarksOptions{}); err != nil {
		return err
	}
	conn, err := grpc.NewClient(j.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(grpcfence.Client{}.Unary()))
	if err != nil {
		return err
	}
	w.grpc = grpc_health_v1.NewHealthClient(conn)
	w.replica = httptest.NewServer(httpfence.Require(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c, _ := fencing.ClaimFromContext(r.Context())
		if err := w.commit(r.Context(), c.Name, c); err != nil {
			httpfence.Error(rw, r, err)
		}
	}), byLane, httpfence.Options{}))
	var lanes sync.WaitGroup
	for store := range guardedStores {
		lanes.Go(func() {
			if err := w.write(ctx, store); err != nil && ctx.Err() == nil {
				parent.Say("writer", writerEvent{Store: store, Err: err.Error()})
			}
		})
	}
	lanes.Wait()
	return nil
}

// byLane uses the path as the resource and as the name of the lock.
func byLane(r *http.Request) (resource, name string, err error) {
	lane := strings.TrimPrefix(r.URL.Path, "/")
	return lane, lane, nil
}

// write acquires the lock of one store and writes, again and again.
func (w *writerProcess) write(ctx context.Context, store string) error {
	lane := w.job.Pair + "/" + store
	for {
		lk, err := locker.NewMutex(w.sess, lane).Lock(ctx)
		if err != nil {
			return err
		}
		ev, err := w.writeUntilStale(ctx, store, lane, lk)
		if err != nil {
			return err
		}
		w.parent.Say("writer", ev)
		_ = lk.Unlock(ctx) // the lock is lost
	}
}

// uncheckedLock skips Check, as if the process were always paused after it.
type uncheckedLock struct{ *locker.Lock }

func (uncheckedLock) Check() error { return nil }

// writeUntilStale writes under one hold until it is refused as stale.
func (w *writerProcess) writeUntilStale(ctx context.Context, store, lane string, lk *locker.Lock) (writerEvent, error) {
	ev := writerEvent{Store: store, What: "wrote", Token: lk.Token()}
	write := guardedStores[store](w, uncheckedLock{lk}, lane)
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for failed := 0; failed < 1000; <-pace.C {
		attempt, cancel := context.WithTimeout(ctx, time.Second) // shorter than a pause, so that it may end during one
		err := write(attempt)
		cancel()
		switch fence.VerdictOf(err) {
		case fence.Done:
			failed = 0
			if ev.Acknowledged++; ev.Acknowledged == 1 {
				w.parent.Say("writer", ev)
			}
		case fence.Stale:
			ev.What = "stale"
			return ev, nil
		case fence.NothingDone:
			failed++
		case fence.OutcomeUnknown:
			failed++
			ev.Unknown++
		default:
			return ev, fmt.Errorf("%s: %w", lane, err)
		}
		if ctx.Err() != nil {
			return ev, ctx.Err()
		}
	}
	return ev, errors.New(lane + ": 1000 writes in a row neither succeeded nor were refused")
}

func (w *writerProcess) commit(ctx context.Context, lane string, c fencing.Claim) error {
	_, err := w.marks.Commit(ctx, lane, c, clientv3.OpPut("data/"+lane, c.Token.String()))
	return err
}

// put sends the body in two parts, so that a pause may fall between them.
func (w *writerProcess) put(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url,
		io.MultiReader(strings.NewReader("one"), strings.NewReader("two")))
	if err != nil {
		return err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return httpfence.CheckResponse(resp)
}
