package session

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// patched has, for each release line of etcd that began with a certain bug, the patch release that fixes it. With the
// bug, a member could answer a linearizable read with stale data after a pause, and such reads confirm renewals. Lines
// before the first are too old; lines after the last never had the bug.
var patched = []version{{3, 5, 28}, {3, 6, 9}}

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

// tooOld reports whether a server of that version may answer a linearizable read with stale data. It returns false
// for a version that cannot be parsed.
func tooOld(text string) bool {
	v, prerelease, ok := parseVersion(text)
	if !ok {
		return false
	}
	for _, min := range patched {
		if v[0] == min[0] && v[1] == min[1] {
			return v[2] < min[2] || v[2] == min[2] && prerelease
		}
	}
	return v[0] < patched[0][0] || v[0] == patched[0][0] && v[1] < patched[0][1]
}

// CheckServerVersion returns nil if a session may rely on an etcd server of this version, as its Status reports it, and
// otherwise an error that says why not and which versions are supported. A version that cannot be parsed is accepted.
// New logs the same as a warning.
func CheckServerVersion(version string) error {
	if !tooOld(version) {
		return nil
	}
	return fmt.Errorf("unsupported etcd version %s: linearizable reads may return stale data, so a lost lock may still "+
		"look held; upgrade to %v, %v or newer", version, patched[0], patched[1])
}

// warnOfOldServers asks as many times for a version as there are endpoints, and logs which servers are too old.
func (s *Session) warnOfOldServers(ctx context.Context) {
	ask := maintenance(s.client)
	if ask == nil {
		return // not a whole client
	}
	var old []string
	for _, endpoint := range s.client.Endpoints() {
		attempt, cancel := context.WithTimeout(ctx, s.opts.Retry.Attempt)
		status, err := ask.Status(attempt, endpoint)
		cancel()
		endpoint := withoutUser(endpoint)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.opts.Logger.Debug("holdfast: could not query etcd server version", "endpoint", endpoint, "error", err)
		case tooOld(status.Version):
			if status.Header != nil {
				endpoint = fmt.Sprintf("member %x", status.Header.MemberId)
			}
			old = append(old, endpoint+" is "+status.Version)
		}
	}
	if old != nil {
		s.opts.Logger.Warn("holdfast: unsupported etcd version: linearizable reads may return stale data, "+
			"so a lost lock may still look held; upgrade",
			"servers", old, "need", fmt.Sprintf("%v, %v or newer", patched[0], patched[1]))
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
