package queue

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast"
)

// maxName bounds a name or prefix in bytes: etcd compares whole keys, and a
// name ends up in keys, logs and errors.
const maxName = 512

// CheckName reports why name cannot name a lock or election (kind says which,
// for the message), or nil. A name is non-empty segments joined by "/", none
// starting with "@", taken byte for byte: so the entries of one name, which
// stand under NAME/@/, are never inside another's prefix.
func CheckName(kind, name string) error {
	bad := func(reason string) error { return &holdfast.NameError{Kind: kind, Name: name, Reason: reason} }
	switch {
	case name == "":
		return bad("is empty")
	case len(name) > maxName:
		return bad(fmt.Sprintf("is longer than %d bytes", maxName))
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

// checkPrefix reports why a foreign prefix cannot be used, or nil. Whatever
// etcd's concurrency package takes is taken, but for the empty prefix, whose
// queue would be the whole store.
func checkPrefix(kind, prefix string) error {
	switch {
	case prefix == "":
		return &holdfast.NameError{Kind: kind + " prefix", Name: prefix, Reason: "is empty"}
	case len(prefix) > maxName:
		return &holdfast.NameError{Kind: kind + " prefix", Name: prefix, Reason: fmt.Sprintf("is longer than %d bytes", maxName)}
	}
	return nil
}
