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

// patched are the release lines of etcd that began with a bug a session cannot
// see through, and the patch release that has mended it: after a pause, a member
// could answer a linearizable read with what was true before. Renewals are
// confirmed by such reads. Lines before the first are too old, those after the
// last have never had it.
var patched = []version{{3, 5, 28}, {3, 6, 9}}

// version is a release of etcd: major, minor, patch.
type version [3]int

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// parseVersion reads a version as etcd's servers report it, "3.6.9". What comes
// before a release ("3.6.9-rc.0") may lack what that is for.
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

// tooOld reports whether a server of that version may answer a linearizable
// read with stale data. Of a version that cannot be read it does not claim so.
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

// warnOfOldServers asks for a version as often as there are endpoints and says in
// the log which servers are too old. It is run by Go; nothing waits for it but
// Close, which ends its context.
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
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.opts.Logger.Debug("holdfast: the version of an etcd server could not be asked", "endpoint", endpoint, "error", err)
		case tooOld(status.Version):
			if status.Header != nil {
				endpoint = fmt.Sprintf("member %x", status.Header.MemberId)
			}
			old = append(old, endpoint+" is "+status.Version)
		}
	}
	if old != nil {
		s.opts.Logger.Warn("holdfast: etcd servers are older than is supported: they may answer a linearizable read with stale data, "+
			"and a lock be believed to be held that is not; upgrade them",
			"servers", old, "need", fmt.Sprintf("%v, %v or newer", patched[0], patched[1]))
	}
}

// maintenance is whom to ask for versions: the servers in turn, over the
// connection that is there. A client's own Maintenance makes a connection for
// each question, and reads the endpoints without their lock meanwhile: a race
// with SetEndpoints and with AutoSyncInterval. Another one that somebody has put
// in its place is asked as it is.
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
