package session

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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

// warnOfOldServers asks each endpoint once for its version and says in the log
// which are too old. It is run by Go; nothing waits for it but Close, which ends
// its context.
func (s *Session) warnOfOldServers(ctx context.Context) {
	if s.client.Maintenance == nil {
		return // not a whole client
	}
	var old []string
	for _, endpoint := range s.client.Endpoints() {
		attempt, cancel := context.WithTimeout(ctx, s.opts.Retry.Attempt)
		status, err := s.client.Status(attempt, endpoint) // on a connection of its own, closed when it returns
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.opts.Logger.Debug("holdfast: the version of an etcd server could not be asked", "endpoint", endpoint, "error", err)
		case tooOld(status.Version):
			old = append(old, endpoint+" is "+status.Version)
		}
	}
	if old != nil {
		s.opts.Logger.Warn("holdfast: etcd servers are older than is supported: they may answer a linearizable read with stale data, "+
			"and a lock be believed to be held that is not; upgrade them",
			"servers", old, "need", fmt.Sprintf("%v, %v or newer", patched[0], patched[1]))
	}
}
