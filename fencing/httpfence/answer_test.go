package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/internal/fence"
)

// ledger is a store that is a transaction: what an effect appends to pending counts
// once it is committed. Its mark is 5.
type ledger struct {
	commit   func() error // nil: succeeds
	pending  []string
	answered func() bool // whether the client has a response; may be nil

	mu        sync.Mutex // held from begin to commit
	committed []string
	early     bool // the client had a response before the commit
}

func (l *ledger) Do(ctx context.Context, resource string, c fencing.Claim, effect func(context.Context) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = nil
	if c.Token < 5 {
		return &fencing.MarkError{Resource: resource, Claim: c, Mark: 5}
	}
	if err := effect(ctx); err != nil {
		return fmt.Errorf("rolled back: %w", err)
	}
	if l.answered != nil {
		l.early = l.answered()
	}
	if l.commit != nil {
		if err := l.commit(); err != nil {
			return err
		}
	}
	l.committed = append(l.committed, l.pending...)
	return nil
}

func (l *ledger) contents() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.committed, " ")
}

func TestAnswerIsSentAfterTheCommit(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version int) {
		for how, write := range map[string]func(w http.ResponseWriter, rc *http.ResponseController){
			"Content-Length": func(w http.ResponseWriter, _ *http.ResponseController) {
				w.Header().Set("Content-Length", "4")
				io.WriteString(w, "done")
			},
			"Flush": func(w http.ResponseWriter, rc *http.ResponseController) {
				io.WriteString(w, "done")
				if err := rc.Flush(); !errors.Is(err, http.ErrNotSupported) {
					t.Errorf("Flush: %v", err)
				}
				if _, ok := w.(http.Flusher); ok {
					t.Error("w is an http.Flusher")
				}
			},
			"Hijack": func(w http.ResponseWriter, rc *http.ResponseController) {
				if _, _, err := rc.Hijack(); !errors.Is(err, http.ErrNotSupported) {
					t.Errorf("Hijack: %v", err)
				}
				io.WriteString(w, "done")
			},
			"early hints": func(w http.ResponseWriter, _ *http.ResponseController) {
				w.WriteHeader(http.StatusEarlyHints)
				io.WriteString(w, "done")
			},
		} {
			t.Run(how, func(t *testing.T) {
				l := &ledger{}
				h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					l.pending = append(l.pending, "write")
					write(w, http.NewResponseController(w))
				})
				seen := &watched{}
				l.answered = seen.any
				s := serve(t, seen.front(httpfence.Handler(h, l, byPath, httpfence.Options{})), version)
				resp, text, err := s.put(t, 5, nil)
				if err != nil || resp.StatusCode != 200 || text != "done" || l.contents() != "write" {
					t.Errorf("got %v %q, %v; committed %q", resp, text, err, l.contents())
				}
				if l.early {
					t.Error("answered before the commit")
				}

				l.commit = func() error { return fmt.Errorf("commit: %w", holdfast.ErrOutcomeUnknown) }
				resp, text, err = s.put(t, 5, nil)
				if resp == nil || resp.StatusCode != 500 || !errors.Is(err, holdfast.ErrOutcomeUnknown) ||
					errors.Is(err, fencing.ErrNotDone) || strings.Contains(text, "done\n") {
					t.Errorf("commit without an answer: got %v %q, %v", resp, text, err)
				}

				l.commit = func() error { return fencing.NotDone(errors.New("secret: serialization failure")) }
				resp, text, err = s.put(t, 5, nil)
				if resp == nil || resp.StatusCode != 503 || !errors.Is(err, fencing.ErrNotDone) ||
					strings.Contains(text, "secret") {
					t.Errorf("refused commit: got %v %q, %v", resp, text, err)
				}
				if l.contents() != "write" {
					t.Errorf("committed %q", l.contents())
				}
			})
		}
	})
}

// watched reports whether anything was written to the client.
type watched struct {
	mu   sync.Mutex // protects sent
	sent bool
}

func (x *watched) any() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sent
}

func (x *watched) front(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.mu.Lock()
		x.sent = false
		x.mu.Unlock()
		w.Header().Set("X-Outer", "yes")
		h.ServeHTTP(&watchedWriter{w, x}, r)
	})
}

type watchedWriter struct {
	http.ResponseWriter
	x *watched
}

func (w *watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *watchedWriter) WriteHeader(status int) {
	w.x.mu.Lock()
	w.x.sent = true
	w.x.mu.Unlock()
	w.ResponseWriter.WriteHeader(status)
}

func (w *watchedWriter) Write(b []byte) (int, error) {
	w.x.mu.Lock()
	w.x.sent = true
	w.x.mu.Unlock()
	return w.ResponseWriter.Write(b)
}

func TestHandlerThatAnswersAnErrorCommitsNothing(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version int) {
		for _, c := range []struct {
			status  int
			commits bool
		}{{200, true}, {204, true}, {303, true}, {400, false}, {409, false}, {500, false}, {503, false}} {
			l := &ledger{}
			s := serve(t, httpfence.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				l.pending = append(l.pending, "half")
				w.Header().Set("X-Own", "yes")
				w.WriteHeader(c.status)
				w.Header().Set("X-Late", "yes") // too late to be sent
				w.WriteHeader(201)              // ignored
				if c.status != 204 {
					io.WriteString(w, "own words")
				}
			}), l, byPath, httpfence.Options{}), version)
			s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			resp, text, err := s.put(t, 5, nil)
			if err != nil || resp.StatusCode != c.status || c.status != 204 && text != "own words" {
				t.Errorf("%d: got %v %q, %v", c.status, resp, text, err)
			} else if resp.Header.Get("X-Own") != "yes" || resp.Header.Get("X-Late") != "" {
				t.Errorf("%d: header is %v", c.status, resp.Header)
			}
			if (l.contents() != "") != c.commits {
				t.Errorf("%d: committed %q", c.status, l.contents())
			}
		}
	})
}

// The handler has ended the transaction by itself, so its own answer, "nothing was done", is not to be believed.
func TestErrorOfAHandlerThatCommittedByItselfIsAnUnknownOutcome(t *testing.T) {
	silenceLog(t)
	committed := fmt.Errorf("the transaction had ended: %w", holdfast.ErrOutcomeUnknown)
	store := storeFunc(func(ctx context.Context, effect func(context.Context) error) error {
		return errors.Join(committed, effect(ctx))
	})
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(409) })
	resp := sendClaim(httpfence.Handler(h, store, byPath, httpfence.Options{}), "5")
	if err := httpfence.CheckResponse(resp); resp.StatusCode != 500 || !errors.Is(err, holdfast.ErrOutcomeUnknown) {
		t.Errorf("got %d, %v", resp.StatusCode, err)
	}
}

// storeFunc is a store that is a function.
type storeFunc func(ctx context.Context, effect func(context.Context) error) error

func (f storeFunc) Do(ctx context.Context, _ string, _ fencing.Claim, effect func(context.Context) error) error {
	return f(ctx, effect)
}

func silenceLog(t *testing.T) {
	old := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	t.Cleanup(func() { slog.SetDefault(old) })
}

func TestHandlerThatPanicsCommitsAndAnswersNothing(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version int) {
		for name, boom := range map[string]func(w http.ResponseWriter){
			"panic":           func(http.ResponseWriter) { panic("boom") },
			"ErrAbortHandler": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
			"invalid status":  func(w http.ResponseWriter) { w.WriteHeader(7) },
		} {
			l := &ledger{}
			s := serve(t, httpfence.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				l.pending = append(l.pending, "half")
				w.Header().Set("Content-Length", "4")
				if name != "invalid status" {
					io.WriteString(w, "done")
				}
				boom(w)
			}), l, byPath, httpfence.Options{}), version)
			if resp, text, err := s.put(t, 5, nil); err == nil {
				t.Errorf("%s: got %v %q", name, resp, text)
			}
			if l.contents() != "" {
				t.Errorf("%s: committed %q", name, l.contents())
			}
		}
	})
}

func TestAnswerIsTheSameAsWithoutAGuard(t *testing.T) {
	handlers := map[string]http.HandlerFunc{
		"nothing":      func(http.ResponseWriter, *http.Request) {},
		"header alone": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Own", "yes") },
		"outer header removed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Del("X-Outer")
			io.WriteString(w, "<p>")
		},
		"status after early hints": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("X-Own", "late")
			w.WriteHeader(202)
			io.WriteString(w, "body")
		},
		"long": func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				io.WriteString(w, strings.Repeat("x", 1000))
			}
		},
		"declared trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			w.WriteHeader(202)
			io.WriteString(w, "body")
			w.Header().Set("X-Sum", "7")
		},
		"trailer set before, and again": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			w.Header().Set("X-Sum", "1")
			io.WriteString(w, "body")
			w.Header().Set("X-Sum", "2")
		},
		"request's trailer": func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s", b, r.Trailer.Get("X-Check"))
		},
	}
	forEachVersion(t, func(t *testing.T, version int) {
		for name, h := range handlers {
			outer := func(h http.Handler) http.Handler { return (&watched{}).front(h) }
			ask := func(h http.Handler) string {
				s := serve(t, outer(h), version)
				ctx := fencing.NewContext(t.Context(), &holder{name: "lock/a", token: 5})
				body := io.NopCloser(strings.NewReader("sent"))
				req, err := http.NewRequestWithContext(ctx, "PUT", s.srv.URL+"/r/a", body)
				if err != nil {
					t.Fatal(err)
				}
				req.Trailer = http.Header{"X-Check": {"ok"}}
				resp, err := s.client.Do(req)
				if err != nil {
					t.Fatal(name, err)
				}
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				resp.Header.Del("Date")
				return fmt.Sprintf("%s %v %v %d %.20s %v\n", resp.Status, resp.Header, resp.Trailer, len(text), text, err)
			}
			bare, guarded := ask(h), ask(httpfence.Handler(h, &ledger{}, byPath, httpfence.Options{}))
			if bare != guarded {
				t.Errorf("%s:\n%s guarded:\n%s", name, bare, guarded)
			}
		}
	})
}

// 101 is the only status below 200 that ends a response.
func TestAnswerMaySwitchProtocols(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) })
	if resp := sendClaim(httpfence.Handler(h, &ledger{}, byPath, httpfence.Options{}), "5"); resp.StatusCode != 101 {
		t.Errorf("got %d", resp.StatusCode)
	}
}

func TestAnswerThatIsTooLongCommitsNothing(t *testing.T) {
	l := &ledger{}
	s := serve(t, httpfence.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.pending = append(l.pending, "half")
		for i := range 3 {
			if _, err := w.Write(make([]byte, 40)); (err != nil) != (i == 2) {
				t.Errorf("write %d: %v", i, err)
			}
		}
	}), l, byPath, httpfence.Options{MaxAnswer: 100}), 1)
	resp, text, err := s.put(t, 5, nil)
	if resp == nil || resp.StatusCode != 500 || !errors.Is(err, holdfast.ErrOutcomeUnknown) ||
		!strings.Contains(text, "MaxAnswer") || l.contents() != "" {
		t.Errorf("got %v %q, %v; committed %q", resp, text, err, l.contents())
	}
}

func TestRefusalIsRecordedOnceWithThePeersAddress(t *testing.T) {
	j := &journal{}
	within := func(http.ResponseWriter, *http.Request) {}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { within(w, r) })
	s := serve(t, httpfence.Handler(h, &ledger{}, byPath, httpfence.Options{Auditor: j}), 1)
	if _, _, err := s.put(t, 3, nil); !errors.Is(err, fencing.ErrStale) {
		t.Error(err)
	}
	if got := j.Take(); len(got) != 1 || got[0].Holder == "" || got[0].Mark != 5 {
		t.Errorf("recorded %+v", got)
	}
	// Another guard in the handler records its own refusals.
	within = func(w http.ResponseWriter, r *http.Request) {
		c, _ := fencing.ClaimFromContext(r.Context())
		err := &fencing.MarkError{Resource: "inner", Claim: c, Mark: 9}
		fence.AuditRefusal(r.Context(), j, "inner", c, "", err)
		httpfence.Error(w, r, err)
	}
	if _, _, err := s.put(t, 7, nil); !errors.Is(err, fencing.ErrStale) {
		t.Error(err)
	}
	if got := j.Take(); len(got) != 1 || got[0].Resource != "inner" || got[0].Mark != 9 {
		t.Errorf("recorded %+v", got)
	}
}
