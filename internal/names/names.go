// Package names has the rules that all packages share for names: how one is
// quoted in a message, what a name and a namespace may look like, and which keys hold
// the fencing epoch and the sessions of a namespace.
package names

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
)

// DefaultNamespace is the namespace for which "" stands.
const DefaultNamespace = "holdfast"

// MaxNamespace bounds a namespace, in bytes.
const MaxNamespace = 64

// Namespace returns ns, or [DefaultNamespace] for "". The error is a
// *holdfast.NameError.
func Namespace(ns string) (string, error) {
	var reason string
	switch {
	case ns == "":
		return DefaultNamespace, nil
	case strings.Contains(ns, "/"):
		reason = `contains "/"; a namespace is a single segment`
	case ns[0] == '@':
		reason = `starts with "@", which is reserved`
	case !utf8.ValidString(ns):
		reason = "is not UTF-8" // a ticket has it as text
	case len(ns) > MaxNamespace:
		reason = fmt.Sprintf("is longer than %d bytes", MaxNamespace)
	default:
		return ns, nil
	}
	return "", &holdfast.NameError{Kind: "namespace", Name: ns, Reason: reason}
}

// EpochKey returns the key that holds the fencing epoch of a namespace.
func EpochKey(namespace string) string { return namespace + "/epoch" }

// Lease returns the ID of a lease for people: in hexadecimal, as etcdctl prints it.
func Lease(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }

// Quote returns a name for use in a message: escaped, and cut after 128 bytes.
func Quote(name string) string {
	const most = 128
	if len(name) > most {
		return fmt.Sprintf("%q… (%d bytes)", name[:most], len(name))
	}
	return fmt.Sprintf("%q", name)
}

// Claimed returns the name in the claim of a holder: its name, or what its ClaimName says, as that of a shard does.
func Claimed(holder interface{ Name() string }) string {
	if h, ok := holder.(interface{ ClaimName() string }); ok {
		return h.ClaimName()
	}
	return holder.Name()
}

// IsNil reports whether a holder is nil or a nil pointer, such as the *Lock of a failed acquisition.
func IsNil(holder any) bool {
	if holder == nil {
		return true
	}
	v := reflect.ValueOf(holder)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
