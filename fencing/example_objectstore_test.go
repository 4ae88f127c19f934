package fencing_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// What docs/object-stores.md shows. objectstore_test.go runs it.

// guide: bucket

// Bucket is your client library.
type Bucket interface {
	// Get returns an object and its version, the ETag or generation: "" if there is none.
	Get(ctx context.Context, key string) (object []byte, version string, err error)

	// PutIf replaces that version, or creates the object if version is "". The error is ErrOvertaken for a 412, S3's
	// 409 ConditionalRequestConflict and Azure's 409 BlobAlreadyExists.
	PutIf(ctx context.Context, key, version string, object []byte) error
}

var ErrOvertaken = errors.New("another version of the object is there")

// guide: change

// ChangeFenced replaces the data of an object by what change makes of it.
func ChangeFenced(ctx context.Context, b Bucket, lk fencing.Holder, key string,
	change func(old []byte) ([]byte, error)) error {
	var sent []byte
	for try := 1; ; try++ {
		claim, err := fencing.Present(lk) // lost, released and suspended holders end here
		if err != nil {
			return err
		}
		object, version, err := b.Get(ctx, key)
		if err != nil {
			return err
		}
		if sent != nil && bytes.Equal(object, sent) {
			return nil // the client library repeated its own write, and was told of that
		}
		var mark fencing.Claim // none for a new object
		var old []byte
		if version != "" {
			if mark, old, err = splitMark(object); err != nil {
				return err // not written by this pattern: that is not "no mark"
			}
		}
		// Another lock, a larger token, or one that no lock issues.
		if err := claim.CheckMark(key, mark); err != nil {
			return err
		}
		if try > 5 {
			return errors.New("overtaken too often")
		}
		data, err := change(old)
		if err != nil {
			return err
		}
		// The mark is part of the content, and no two writes have the same.
		sent = append(fmt.Appendln(nil, url.PathEscape(claim.Name), claim.Token, rand.Text()), data...)
		if err := b.PutIf(ctx, key, version, sent); !errors.Is(err, ErrOvertaken) {
			return err // without a reply: unknown. It may be there, or come later
		}
	}
}

// splitMark returns the mark of an object, which is its first line, and the data.
func splitMark(object []byte) (mark fencing.Claim, data []byte, err error) {
	line, data, _ := bytes.Cut(object, []byte("\n"))
	fields := strings.Split(string(line), " ")
	if len(fields) != 3 {
		return mark, nil, errors.New("the object has no mark")
	}
	if mark.Name, err = url.PathUnescape(fields[0]); err == nil {
		mark.Token, err = holdfast.ParseToken(fields[1])
	}
	return mark, data, err
}

// guide: claim

// ClaimObject writes the token of a new holder before it reads anything to compute with.
func ClaimObject(ctx context.Context, b Bucket, lk fencing.Holder, key string) error {
	return ChangeFenced(ctx, b, lk, key, func(old []byte) ([]byte, error) { return old, nil })
}

// guide: end
