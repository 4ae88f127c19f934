package names

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast"
)

// maxLength bounds a name or prefix in bytes. It is part of keys, log lines and errors.
const maxLength = 512

// Check returns why name cannot name a lock, an election or a group of members, or nil; kind says which
// it is, for the message. A name consists of non-empty segments joined by "/". No
// segment starts with "@", so the entries of one name, which are NAME/@/…, are never
// below the prefix of another.
func Check(kind holdfast.Kind, name string) error {
	bad := func(reason string) error {
		return &holdfast.NameError{Kind: string(kind), Name: name, Reason: reason}
	}
	switch {
	case name == "":
		return bad("is empty")
	case len(name) > maxLength:
		return bad(fmt.Sprintf("is longer than %d bytes", maxLength))
	}
	for segment := range strings.SplitSeq(name, "/") {
		switch {
		case segment == "":
			return bad(`has an empty segment: no leading, trailing or doubled "/"`)
		case segment[0] == '@':
			return bad(`has a segment that starts with "@", which is reserved`)
		}
	}
	return nil
}

// CheckPrefix returns why a foreign prefix cannot be used, or nil. Any prefix is
// allowed that etcd's concurrency package takes, but the empty one: its queue would be
// the whole store.
func CheckPrefix(kind holdfast.Kind, prefix string) error {
	bad := func(reason string) error {
		return &holdfast.NameError{Kind: string(kind) + " prefix", Name: prefix, Reason: reason}
	}
	switch {
	case prefix == "":
		return bad("is empty")
	case len(prefix) > maxLength:
		return bad(fmt.Sprintf("is longer than %d bytes", maxLength))
	}
	return nil
}
