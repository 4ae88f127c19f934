package etcderr

import "github.com/holdfast-go/holdfast/internal/retry"

// ErrNotConnected means that etcd's client had no connection when a context ended. The error also says why: an
// untrusted certificate, a refused port. The request may have been sent before the connection broke. Calls of this
// module return it; etcd's client itself returns only the context's error.
var ErrNotConnected = retry.ErrNotConnected
