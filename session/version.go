package session

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcderr"
)

// patched is the fix of a bug in etcd: for each release line that began with the bug, the patch release without it.
// Lines before the first have the bug; lines after the last never had it.
type patched []version

var (
	// freshReads: without this fix a member may answer a linearizable read with stale data after a pause, and such reads
	// confirm renewals.
	freshReads = patched{{3, 5, 28}, {3, 6, 9}}

	// keptRoles is the fix of GHSA-xg4h-6gfc-h4m8: a watch of all keys from one on was permitted as if it were of that
	// one key.
	keptRoles = patched{{3, 5, 33}, {3, 6, 14}, {3, 7, 1}}
)

func (p patched) String() string {
	var list []string
	for _, v := range p {
		list = append(list, v.String())
	}
	return strings.Join(list, ", ") + " or newer"
}

// version is a release of etcd: major, minor, patch.
type version [3]int

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// parseVersion parses a version as etcd servers report it, such as "3.6.9". A prerelease ("3.6.9-rc.0") may lack
// the fix.
func parseVersion(text string) (v version, prerelease, ok bool) {
	text, _, _ = strings.Cut(text, "+")
	text, _, prerelease = strings.Cut(text, "-")
	parts := strings.Split(text, ".")
	if len(parts) != len(v) {
		return v, false, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return v, false, false
		}
		v[i] = int(n)
	}
	return v, prerelease, true
}

// lackedBy reports whether a server of that version lacks the fix; false for a version that cannot be parsed.
func (p patched) lackedBy(text string) bool {
	v, prerelease, ok := parseVersion(text)
	if !ok {
		return false
	}
	for _, min := range p {
		if v[0] == min[0] && v[1] == min[1] {
			return v[2] < min[2] || v[2] == min[2] && prerelease
		}
	}
	return v[0] < p[0][0] || v[0] == p[0][0] && v[1] < p[0][1]
}

// CheckServerVersion returns nil if a session may rely on an etcd server of this version, as its Status reports it, and
// otherwise an error that says why not and which versions are supported. A version that cannot be parsed is accepted.
// New logs the same as a warning. It does not judge whether etcd keeps its roles: see CheckServerRoles.
func CheckServerVersion(version string) error {
	if !freshReads.lackedBy(version) {
		return nil
	}
	return fmt.Errorf("unsupported etcd version %s: linearizable reads may return stale data, so a lost lock may still "+
		"look held; upgrade to %v", version, freshReads)
}

// leak is what a server without keptRoles allows.
const leak = "a user who may read one key may watch every key behind it (GHSA-xg4h-6gfc-h4m8)"

// CheckServerRoles returns nil if an etcd server of this version keeps its users to their roles, where etcd's auth is
// on, and otherwise an error that says which versions do. Before 3.5.33, 3.6.14 and 3.7.1 it does not
// (GHSA-xg4h-6gfc-h4m8): who may read one key, such as NAMESPACE/epoch, may watch every key behind it, those of other
// applications, too. Locks and fenced writes are not affected. A version that cannot be parsed is accepted.
//
// New asks such a server whether auth is on, and logs the same as a warning if it is.
func CheckServerRoles(version string) error {
	if !keptRoles.lackedBy(version) {
		return nil
	}
	return fmt.Errorf("etcd %s does not keep users to their roles: %s; upgrade to %v", version, leak, keptRoles)
}

// warnOfOldServers asks as many times for a version as there are endpoints, and logs which servers are too old.
func (e *env) warnOfOldServers(ctx context.Context) {
	ask := maintenance(e.client)
	if ask == nil {
		return // not a whole client
	}
	var stale, leaking []string
	auth := false // it is known to be on
	for _, endpoint := range e.client.Endpoints() {
		attempt, cancel := context.WithTimeout(ctx, e.opts.Retry.Attempt)
		status, err := ask.Status(attempt, endpoint)
		cancel()
		endpoint := withoutUser(endpoint)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, rpctypes.ErrPermissionDenied): // servers with the fix answer every user
			auth = true
			leaking = append(leaking, endpoint+" does not tell this user its version")
		case err != nil:
			e.opts.Logger.Debug("holdfast: could not query etcd server version", "endpoint", endpoint, "error", err)
		default:
			if status.Header != nil {
				endpoint = fmt.Sprintf("member %x", status.Header.MemberId)
			}
			if freshReads.lackedBy(status.Version) {
				stale = append(stale, endpoint+" is "+status.Version)
			}
			if keptRoles.lackedBy(status.Version) {
				leaking = append(leaking, endpoint+" is "+status.Version)
			}
		}
	}
	if stale != nil {
		e.opts.Logger.Warn("holdfast: unsupported etcd version: linearizable reads may return stale data, "+
			"so a lost lock may still look held; upgrade", "servers", stale, "need", freshReads.String())
	}
	if leaking != nil && (auth || e.authIsOn(ctx)) {
		e.opts.Logger.Warn("holdfast: this etcd does not keep users to their roles: "+leak+"; upgrade",
			"servers", leaking, "need", keptRoles.String())
	}
}

// authIsOn asks whether etcd's auth is on. Some versions tell it to root only, and refuse other users: then it is on.
func (e *env) authIsOn(ctx context.Context) bool {
	if e.client.Auth == nil {
		return false // not a whole client
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.Retry.Attempt)
	defer cancel()
	status, err := e.client.AuthStatus(ctx)
	switch {
	case err == nil:
		return status.Enabled
	case etcderr.Classify(err) == etcderr.Unauthorized:
		return true
	default:
		e.opts.Logger.Debug("holdfast: could not ask etcd whether auth is on", "error", err)
		return false
	}
}

// maintenance returns a client for versions that uses the existing connection, to the servers in turn. The client's own
// Maintenance would open a connection for each question, and reads the endpoints without their lock, which races with
// SetEndpoints and AutoSyncInterval. A Maintenance that has been replaced is returned as it is.
func maintenance(cli *clientv3.Client) clientv3.Maintenance {
	conn := cli.ActiveConnection()
	if conn == nil || cli.Maintenance == nil {
		return cli.Maintenance
	}
	over := clientv3.NewMaintenanceFromMaintenanceClient(pb.NewMaintenanceClient(conn), cli)
	if reflect.TypeOf(cli.Maintenance) != reflect.TypeOf(over) {
		return cli.Maintenance
	}
	return over
}
