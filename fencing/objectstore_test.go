package fencing_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/fencetest"
)

// s3 is a bucket as Amazon's: the ETag is the MD5 of the content, and of nothing else.
type s3 struct {
	url    string
	client *http.Client
	lose   atomic.Bool // the reply to the next put

	mu       sync.Mutex // protects the following fields
	objects  map[string][]byte
	history  []string // the data of each object that was put
	conflict int      // so many puts are answered 409
	repeat   int      // so many puts are sent twice, as a client library does that got no reply
}

func newS3(t *testing.T) *s3 {
	b := &s3{objects: map[string][]byte{}}
	srv := httptest.NewServer(b)
	t.Cleanup(srv.Close)
	b.url, b.client = srv.URL, srv.Client()
	b.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 16 // one for each client of a race
	return b
}

func (b *s3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, found := b.objects[r.URL.Path]
	etag := fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum(old)))
	if r.Method == http.MethodGet {
		if !found {
			http.Error(w, "NoSuchKey", http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", etag)
		w.Write(old)
		return
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case b.conflict > 0:
		b.conflict--
		http.Error(w, "ConditionalRequestConflict", http.StatusConflict)
	case match != "" && !found:
		http.Error(w, "NoSuchKey", http.StatusNotFound)
	case match != "" && match != etag, none == "*" && found:
		http.Error(w, "PreconditionFailed", http.StatusPreconditionFailed)
	default:
		b.objects[r.URL.Path] = data
		_, text, _ := strings.Cut(string(data), "\n")
		b.history = append(b.history, text)
	}
}

func (b *s3) Get(ctx context.Context, key string) (object []byte, version string, err error) {
	status, header, body, err := b.send(ctx, http.MethodGet, key, "", "", nil)
	if status == http.StatusNotFound || err != nil {
		return nil, "", err
	}
	return body, header.Get("ETag"), nil
}

func (b *s3) PutIf(ctx context.Context, key, version string, object []byte) error {
	field, value := "If-Match", version
	if version == "" {
		field, value = "If-None-Match", "*"
	}
	status, _, body, err := b.send(ctx, http.MethodPut, key, field, value, object)
	if b.lose.CompareAndSwap(true, false) {
		return io.ErrUnexpectedEOF
	}
	b.mu.Lock()
	again := b.repeat > 0
	b.repeat = max(0, b.repeat-1)
	b.mu.Unlock()
	if again {
		status, _, body, err = b.send(ctx, http.MethodPut, key, field, value, object)
	}
	switch {
	case err != nil || status == http.StatusOK:
		return err
	case status == http.StatusPreconditionFailed, bytes.Contains(body, []byte("ConditionalRequestConflict")):
		return ErrOvertaken
	}
	return fmt.Errorf("%d: %s", status, body)
}

func (b *s3) send(ctx context.Context, method, key, field, value string, object []byte) (
	status int, header http.Header, body []byte, err error,
) {
	req, err := http.NewRequestWithContext(ctx, method, b.url+"/"+key, bytes.NewReader(object))
	if err != nil {
		return 0, nil, nil, err
	}
	if field != "" {
		req.Header.Set(field, value)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, body, err
}

// written returns the data of all objects that were put, in order.
func (b *s3) written() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.history)
}

// change writes data, after meanwhile has run between the read and the write.
func (b *s3) change(t *testing.T, token holdfast.Token, data string, meanwhile func()) error {
	return ChangeFenced(t.Context(), b, objectHolder(token), "k", func([]byte) ([]byte, error) {
		if meanwhile != nil {
			meanwhile()
			meanwhile = nil
		}
		return []byte(data), nil
	})
}

func TestObjectsAreGuarded(t *testing.T) {
	b := newS3(t)
	fencetest.Test(t, fencetest.Guard{
		Write: func(ctx context.Context, resource string, c fencing.Claim, data string, between func() error) error {
			h := &holder{name: c.Name, token: c.Token}
			err := ChangeFenced(ctx, b, h, url.PathEscape(resource), func([]byte) ([]byte, error) {
				return []byte(data), between()
			})
			if err != nil && err.Error() == "overtaken too often" {
				err = fencing.NotDone(err) // here each write has got its reply
			}
			return err
		},
		Read: func(ctx context.Context, resource string) (string, error) {
			object, version, err := b.Get(ctx, url.PathEscape(resource))
			if version == "" || err != nil {
				return "", err
			}
			_, data, err := splitMark(object)
			return string(data), err
		},
		LoseReply: func() { b.lose.Store(true) },
	})
}

func objectHolder(token holdfast.Token) fencing.Holder { return &holder{name: "job", token: token} }

// The ETag covers the content only, so a claim that left the content as it is would not be seen.
func TestOldHolderOfAnObjectIsRefusedAfterAClaim(t *testing.T) {
	for name, first := range map[string]bool{"object": true, "no object yet": false} {
		t.Run(name, func(t *testing.T) {
			b := newS3(t)
			if first {
				if err := b.change(t, 5, "5", nil); err != nil {
					t.Fatal(err)
				}
			}
			err := b.change(t, 5, "late", func() {
				if err := ClaimObject(t.Context(), b, objectHolder(7), "k"); err != nil {
					t.Error(err)
				}
			})
			if !errors.Is(err, fencing.ErrStale) || slices.Contains(b.written(), "late") {
				t.Errorf("the write of 5 after the claim of 7: %v, written %q", err, b.written())
			}
		})
	}
}

func TestOldHolderOfAnObjectIsRefusedAfterItsBytesCameBack(t *testing.T) {
	b := newS3(t)
	if err := b.change(t, 5, "x", nil); err != nil {
		t.Fatal(err)
	}
	err := b.change(t, 5, "late", func() {
		for _, data := range []string{"y", "x"} {
			if err := b.change(t, 7, data, nil); err != nil {
				t.Error(err)
			}
		}
	})
	if want := []string{"x", "y", "x"}; !errors.Is(err, fencing.ErrStale) || !slices.Equal(b.written(), want) {
		t.Errorf("%v, written %q, want %q", err, b.written(), want)
	}
}

func TestObjectIsChangedOnceWhateverIsRepeated(t *testing.T) {
	for name, fault := range map[string]func(b *s3){
		"nothing":                             func(*s3) {},
		"409 while another write runs":        func(b *s3) { b.conflict = 2 },
		"412 for a write that was sent twice": func(b *s3) { b.repeat = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			b := newS3(t)
			for i := range 3 {
				fault(b)
				err := ChangeFenced(t.Context(), b, objectHolder(7), "k", func(old []byte) ([]byte, error) {
					n, _ := strconv.Atoi(string(old)) // 0 if there is no object
					return strconv.AppendInt(nil, int64(n)+1, 10), nil
				})
				if err != nil {
					t.Errorf("change %d: %v", i, err)
				}
			}
			if want := []string{"1", "2", "3"}; !slices.Equal(b.written(), want) {
				t.Errorf("written %q, want %q", b.written(), want)
			}
		})
	}
	// Another goroutine of the holder writes the same bytes in between.
	b := newS3(t)
	increment := func(between func()) error {
		return ChangeFenced(t.Context(), b, objectHolder(7), "k", func(old []byte) ([]byte, error) {
			if between != nil {
				between()
				between = nil
			}
			n, _ := strconv.Atoi(string(old))
			return strconv.AppendInt(nil, int64(n)+1, 10), nil
		})
	}
	err := increment(func() {
		if err := increment(nil); err != nil {
			t.Error(err)
		}
	})
	if want := []string{"1", "2"}; err != nil || !slices.Equal(b.written(), want) {
		t.Errorf("two changes of one holder: %v, written %q, want %q", err, b.written(), want)
	}
}

func TestObjectThatIsAlwaysOvertakenIsGivenUp(t *testing.T) {
	b := newS3(t)
	b.conflict = 100
	if err := b.change(t, 7, "never", nil); err == nil || len(b.written()) > 0 {
		t.Errorf("%v, written %q", err, b.written())
	}
}

func TestObjectWithoutAMarkIsNotReplaced(t *testing.T) {
	b := newS3(t)
	for _, object := range []string{"", "data", "job 5\ndata", "job five x\ndata", "a%zz 5 x\ndata"} {
		b.objects["/k"] = []byte(object)
		if err := b.change(t, 7, "new", nil); err == nil || string(b.objects["/k"]) != object {
			t.Errorf("%q was replaced: %v", object, err)
		}
	}
	b.objects["/k"] = []byte("other 5 x\ndata")
	if err := b.change(t, 7, "new", nil); !errors.Is(err, fencing.ErrOtherName) {
		t.Errorf("object of another lock: %v", err)
	}
}
