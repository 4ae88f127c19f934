package session

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/requests"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// A session logs two things about the servers: none grants a lease, and some are too old.

// errNoReply is the error of a request without a reply.
var errNoReply = fmt.Errorf("etcd has not replied: %w", context.DeadlineExceeded)

const (
	// A wait for a lease is logged after toldAfter, and then after each toldEvery.
	toldAfter = time.Second
	toldEvery = time.Minute
)

// tellWait logs why no lease was granted yet, after a second and then each minute: New and a session without a lease
// wait as long as they must, and return their error in the end, or never. last has the error of the latest attempt that
// has failed. The caller calls stop when the wait is over.
func (e *env) tellWait(ctx context.Context, last *atomic.Pointer[error]) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // joined by stop
		defer close(done)
		for pause, waited := toldAfter, toldAfter; lease.Sleep(ctx, pause); pause, waited = toldEvery, waited+toldEvery {
			why := errNoReply // without a reply an attempt goes on, and has no error
			if said := last.Load(); said != nil {
				why = *said
			}
			e.Logger.Warn("holdfast: etcd has granted no lease yet; trying on", "waited", waited,
				"error", retry.WithConnection(e.Client.ActiveConnection(), why))
		}
	}()
	return func() { cancel(); <-done }
}

// patched tells in which releases a bug of etcd is fixed: for each release line that began with the bug, the first
// release without it. Lines before the first have the bug; lines after the last never had it.
type patched [][3]int

var (
	// freshReads: without this fix a member may answer a linearizable read with stale data after a pause. Such reads
	// confirm renewals.
	freshReads = patched{{3, 5, 28}, {3, 6, 9}}

	// keptRoles is the fix of GHSA-xg4h-6gfc-h4m8: who might read a key might watch all keys from there on.
	keptRoles = patched{{3, 5, 33}, {3, 6, 14}, {3, 7, 1}}
)

func (p patched) String() string {
	var list []string
	for _, v := range p {
		list = append(list, fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]))
	}
	return strings.Join(list, ", ") + " or newer"
}

// lackedBy reports whether a server of this version, such as "3.6.9" or "3.7.0-rc.0", lacks the fix. It reports false
// if it cannot parse the version.
func (p patched) lackedBy(text string) bool {
	var v [3]int
	if n, _ := fmt.Sscanf(text, "%d.%d.%d", &v[0], &v[1], &v[2]); n < len(v) {
		return false
	}
	for _, fixed := range p {
		if v[0] == fixed[0] && v[1] == fixed[1] {
			// A prerelease may have been built before the fix.
			return v[2] < fixed[2] || v[2] == fixed[2] && strings.Contains(text, "-")
		}
	}
	return v[0] < p[0][0] || v[0] == p[0][0] && v[1] < p[0][1]
}

// CheckServerVersion returns nil if a session may rely on an etcd server of this version, as its Status reports it. Its
// error says why not, and which versions are supported. CheckServerVersion accepts a version it cannot parse. New logs
// the same as a warning. See CheckServerRoles for servers with auth.
func CheckServerVersion(version string) error {
	if !freshReads.lackedBy(version) {
		return nil
	}
	return fmt.Errorf("unsupported etcd version %s: linearizable reads may return stale data, so a lost lock may still "+
		"look held; upgrade to %v", version, freshReads)
}

// CheckServerRoles returns nil if an etcd server of this version keeps its users to their roles, where etcd's auth is
// on. Its error says which versions do. Before 3.5.33, 3.6.14 and 3.7.1 a user who may read one key, such as
// NAMESPACE/epoch, may watch every key behind it, of other applications, too (GHSA-xg4h-6gfc-h4m8). Locks and fenced
// writes are not affected. CheckServerRoles accepts a version it cannot parse.
func CheckServerRoles(version string) error {
	if !keptRoles.lackedBy(version) {
		return nil
	}
	return fmt.Errorf("etcd %s does not keep users to their roles: a user who may read one key may watch every key "+
		"behind it (GHSA-xg4h-6gfc-h4m8); upgrade to %v", version, keptRoles)
}

// warnOfOldServers asks for a version, once for each endpoint, and logs which servers are too old.
func (e *env) warnOfOldServers(ctx context.Context) {
	ask := maintenance(e.Client)
	if ask == nil {
		return // not a whole client
	}
	var old []string
	for _, endpoint := range e.Client.Endpoints() {
		attempt, cancel := context.WithTimeout(ctx, requests.Patience)
		status, err := ask.Status(attempt, endpoint)
		cancel()
		server := withoutUser(endpoint)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			e.Logger.Debug("holdfast: could not query etcd server version", "endpoint", server, "error", err)
		case freshReads.lackedBy(status.Version):
			if status.Header != nil {
				server = fmt.Sprintf("member %x", status.Header.MemberId)
			}
			old = append(old, server+" is "+status.Version)
		}
	}
	if old != nil {
		e.Logger.Warn("holdfast: unsupported etcd version: linearizable reads may return stale data, "+
			"so a lost lock may still look held; upgrade", "servers", old, "need", freshReads.String())
	}
}

// maintenance returns a client for versions on the existing connection, to the servers in turn. If the client's
// Maintenance was replaced, maintenance returns that.
func maintenance(cli *clientv3.Client) clientv3.Maintenance {
	conn := cli.ActiveConnection()
	if conn == nil || cli.Maintenance == nil {
		return cli.Maintenance
	}
	// The client's own Maintenance would open a connection for each question. It also reads the endpoints without their
	// lock, in a race with SetEndpoints and AutoSyncInterval.
	over := clientv3.NewMaintenanceFromMaintenanceClient(pb.NewMaintenanceClient(conn), cli)
	if reflect.TypeOf(cli.Maintenance) != reflect.TypeOf(over) {
		return cli.Maintenance
	}
	return over
}
