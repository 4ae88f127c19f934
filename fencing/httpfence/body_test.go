package httpfence_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
)

// A client stops in the middle of its body, and a newer holder comes.
func TestSlowBodyDoesNotBlockANewerHolder(t *testing.T) {
	store := memfence.New(memfence.Options{})
	var landed []string
	arrived := make(chan struct{}, 2)
	front := httpfence.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		landed = append(landed, string(b))
	}), store, byPath, httpfence.Options{Auditor: &journal{}})
	forEachVersion(t, func(t *testing.T, version int) {
		landed = nil
		if err := store.Reset(t.Context(), "res/a", &journal{}); err != nil {
			t.Fatal(err)
		}
		s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			front.ServeHTTP(w, r)
		}), version)
		body, slow := io.Pipe()
		stale := make(chan error, 1)
		go func() { // ends when slow is closed; joined by the receive below
			_, _, err := s.put(t, 5, body)
			stale <- err
		}()
		if _, err := io.WriteString(slow, "first half, "); err != nil {
			t.Fatal(err)
		}
		<-arrived
		if _, _, err := s.put(t, 7, strings.NewReader("newer")); err != nil {
			t.Error(err)
		}
		<-arrived
		if _, err := io.WriteString(slow, "second half"); err != nil {
			t.Fatal(err)
		}
		slow.Close()
		if err := <-stale; !errors.Is(err, fencing.ErrStale) {
			t.Errorf("the slow request: %v", err)
		}
		if got := strings.Join(landed, " "); got != "newer" {
			t.Errorf("landed: %s", got)
		}
	})
}

func TestFilesOfAnUploadAreRemovedAfterTheHandler(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	files := func() int {
		entries, err := os.ReadDir(os.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(0); err != nil || files() != 1 {
			t.Errorf("%d files, %v", files(), err)
		}
	})
	for how, m := range middlewares(h, httpfence.Options{}) {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		part, err := form.CreateFormFile("f", "f")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		form.Close()
		r := httptest.NewRequest("PUT", "/r/a", &body)
		r.Header = http.Header{"Fencing-Name": {"lock/a"}, "Fencing-Token": {"7"},
			"Content-Type": {form.FormDataContentType()}}
		if resp := answered(m, r); resp.StatusCode != http.StatusOK || files() != 0 {
			t.Errorf("%s: status %d, %d files are left", how, resp.StatusCode, files())
		}
	}
}

func TestBodyThatCannotBeReadInFullIsRefused(t *testing.T) {
	var e effects
	h := httpfence.Handler(&e, memfence.New(memfence.Options{}), byPath,
		httpfence.Options{MaxBody: 10})
	ask := func(body io.Reader, length int64) *http.Response {
		r := httptest.NewRequestWithContext(context.Background(), "PUT", "/r/a", body)
		r.ContentLength = length
		r.Header.Set("Fencing-Name", "lock/a")
		r.Header.Set("Fencing-Token", "5")
		return answered(h, r)
	}
	for name, c := range map[string]struct {
		body   io.Reader
		length int64
		status int
	}{
		"too long, declared":   {strings.NewReader(strings.Repeat("x", 11)), 11, 413},
		"too long, undeclared": {strings.NewReader(strings.Repeat("x", 11)), -1, 413},
		"broken off":           {io.MultiReader(strings.NewReader("x"), brokenOff{}), -1, 400},
		"longest possible":     {strings.NewReader(strings.Repeat("x", 10)), -1, 200},
	} {
		e.n = 0
		resp := ask(c.body, c.length)
		err := httpfence.CheckResponse(resp)
		if resp.StatusCode != c.status || (e.n == 1) != (c.status == 200) ||
			c.status != 200 && !errors.Is(err, fencing.ErrNotDone) {
			t.Errorf("%s: got %d, ran %d times, %v", name, resp.StatusCode, e.n, err)
		}
	}
	// A length that is declared is refused before anything is read.
	unread := strings.NewReader(strings.Repeat("x", 11))
	if resp := ask(unread, 11); resp.StatusCode != 413 || unread.Len() != 11 {
		t.Errorf("got %d, %d bytes are left to read", resp.StatusCode, unread.Len())
	}
	// By default that is 4 MiB.
	h = httpfence.Handler(&e, memfence.New(memfence.Options{}), byPath, httpfence.Options{})
	for length, status := range map[int]int{4 << 20: 200, 4<<20 + 1: 413} {
		if resp := ask(strings.NewReader(strings.Repeat("x", length)), -1); resp.StatusCode != status {
			t.Errorf("%d bytes: got %d", length, resp.StatusCode)
		}
	}
	// Not read ahead: the handler gets the body as it arrives.
	h = httpfence.Handler(&e, memfence.New(memfence.Options{}), byPath, httpfence.Options{MaxBody: -1})
	if resp := ask(strings.NewReader(strings.Repeat("x", 5<<20)), -1); resp.StatusCode != 200 {
		t.Errorf("got %d", resp.StatusCode)
	}
}

// A client that declares a long body and sends little of it must not cost the server a buffer of that length.
func TestBodyTakesMemoryAsItArrives(t *testing.T) {
	h := httpfence.Handler(&effects{}, memfence.New(memfence.Options{}), byPath, httpfence.Options{})
	const clients, declared = 100, 4 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range clients {
		r := httptest.NewRequest("PUT", "/r/a", io.MultiReader(strings.NewReader("x"), brokenOff{}))
		r.ContentLength = declared
		r.Header.Set("Fencing-Name", "lock/a")
		r.Header.Set("Fencing-Token", "5")
		if resp := answered(h, r); resp.StatusCode != 400 {
			t.Fatalf("got %d", resp.StatusCode)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / clients; each > declared/16 {
		t.Errorf("a body of one byte that is declared to have %d took %d bytes", declared, each)
	}
}

type brokenOff struct{}

func (brokenOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
