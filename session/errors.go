package session

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNotEtcd is New's error if the server serves a part of etcd's API and keeps no leases, as kine does, which k3s has
// in place of etcd: all keys with the same TTL have one lease there, and no lease can be renewed.
var ErrNotEtcd = errors.New("the server is not etcd: it belongs to no cluster, as that of kine (k3s), which keeps no " +
	"leases; give the endpoints of an etcd cluster")

// CallbackError names the callbacks that had not returned when Close stopped waiting for them. Everything else is
// closed. A callback that calls Close gets one that names itself.
type CallbackError struct {
	Callbacks []string      // each by its name and place in the source
	Waited    time.Duration // at most: Options.CloseTimeout
}

func (e *CallbackError) Error() string {
	return fmt.Sprintf("callback still running (Close waits %v for it; see Options.CloseTimeout): %s",
		e.Waited, strings.Join(e.Callbacks, ", "))
}
