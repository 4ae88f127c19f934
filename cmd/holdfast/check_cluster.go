package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/session"
)

// fullAt is the part of the quota above which the database counts as nearly full.
const fullAt = 0.8

// asRoot is what to do where etcd answers administrators only.
const asRoot = "Run \"holdfast check\" once more as a user with the role root: until then this is not checked."

// ask asks each endpoint how it is, and returns what those say that answer. A member without a leader answers, too.
func (c *checker) ask(ctx context.Context, timeout time.Duration) map[uint64]*clientv3.StatusResponse {
	answered := make(map[uint64]*clientv3.StatusResponse)
	for _, address := range c.cli.Endpoints() {
		asked, cancel := context.WithTimeout(ctx, timeout)
		status, err := c.cli.Status(asked, address)
		cancel()
		endpoint := address
		if at := strings.LastIndexByte(endpoint, '@'); at >= 0 {
			endpoint = endpoint[at+1:] // without the user and the password of a URL
		}
		if err != nil {
			c.silent(endpoint, err)
			continue
		}
		answered[status.Header.MemberId] = status
		c.member(endpoint, status)
		c.proxy(ctx, timeout, address, endpoint)
	}
	return answered
}

// members asks the cluster which members it has, of which some have answered, and whether they keep users to their
// roles.
func (c *checker) members(ctx context.Context, timeout time.Duration, answered map[uint64]*clientv3.StatusResponse) {
	c.roles(ctx, timeout)
	listed, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	list, err := c.cli.MemberList(listed)
	if err != nil {
		advice := ""
		if exitCode(err) == exitDenied {
			advice = asRoot
		}
		c.warn("members", fmt.Sprintf("the list of members cannot be read: %v", err), advice)
		return
	}
	voters := 0
	var missing []string
	for _, m := range list.Members {
		if !m.IsLearner {
			voters++
		}
		if answered[m.ID] == nil {
			missing = append(missing, fmt.Sprintf("%s (%s)", m.Name, strings.Join(m.ClientURLs, ", ")))
		}
	}
	c.size(voters, missing)
}

// noSpace says that the store is full.
func (f *findings) noSpace(detail string) {
	f.full = true
	f.fail("alarms", detail, "Nothing new can be locked; what is held is renewed and released. As root run \"etcdctl "+
		"compact REVISION\", \"etcdctl defrag\" with all --endpoints, then \"etcdctl alarm disarm\"; or raise "+
		"--quota-backend-bytes. Meanwhile \"kick\" cannot write: \"etcdctl lease revoke LEASE\" ends a holder.")
}

// refusedFull reports whether etcd has refused a request because its store is full, and says so unless a member's
// status has: up to 3.6.11 etcd 3.6 shows its alarms to the role root only.
func (f *findings) refusedFull(err error) bool {
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		return false
	}
	if !f.full {
		f.noSpace(fmt.Sprintf("etcd refuses writes: %v", err))
	}
	return true
}

// silent judges why a member does not tell its status. Up to 3.6.11 etcd 3.6 tells it to the role root only.
func (c *checker) silent(endpoint string, err error) {
	if exitCode(err) == exitDenied && c.anonymous {
		c.warn("members", endpoint+" runs; how it is, it tells only after a login", "")
		return
	}
	if exitCode(err) == exitDenied {
		if errors.Is(err, rpctypes.ErrPermissionDenied) {
			c.auth = true
			c.leaks("a server does not tell this user its version, so it lacks the fix of GHSA-xg4h-6gfc-h4m8: upgrade it")
		}
		c.warn("members", fmt.Sprintf("%s does not tell this user its version, alarms and space: %v", endpoint, err), asRoot)
		return
	}
	c.warn("members", fmt.Sprintf("%s does not answer: %v", endpoint, err),
		"Start the member, or remove it from --endpoints. Sessions survive it while the others are a quorum.")
}

// leaks notes that there is a server that does not keep users to their roles. Servers of one version say the same.
func (c *checker) leaks(text string) {
	if !slices.Contains(c.leaking, text) {
		c.leaking = append(c.leaking, text)
	}
}

// roles warns of servers that do not keep users to their roles, where auth is on. That costs no lock.
func (c *checker) roles(ctx context.Context, timeout time.Duration) {
	if c.leaking == nil {
		return
	}
	advice := "Until all are upgraded keep nothing secret in this etcd."
	if !c.auth {
		asked, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		status, err := c.cli.AuthStatus(asked)
		switch {
		case err == nil && !status.Enabled:
			return
		case err != nil && exitCode(err) != exitDenied: // some versions tell it to root only: then it is on
			advice += fmt.Sprintf(" Whether auth is on could not be asked: %v", err)
		}
	}
	c.warn("roles", strings.Join(c.leaking, "; "), advice)
}

// size judges how many members there are.
func (c *checker) size(voters int, missing []string) {
	switch {
	case voters == 1:
		c.warn("members", "one member: when it is down for the TTL, all locks are lost", "Run three members.")
	case voters%2 == 0:
		c.warn("members", fmt.Sprintf("%d voting members tolerate no more failures than %d", voters, voters-1),
			"Run an odd number of members.")
	default:
		c.ok("members", "%d voting members, %d may fail", voters, (voters-1)/2)
	}
	if len(missing) > 0 {
		c.warn("members", "did not answer, or is not in --endpoints: "+strings.Join(missing, "; "),
			"List all members that run: a request that hangs is sent to the others that the client knows.")
	}
}

// member judges the status of one.
func (c *checker) member(endpoint string, status *clientv3.StatusResponse) {
	switch cluster := status.Header.GetClusterId(); {
	case cluster == 0:
		c.fail("members", endpoint+" is not etcd: it belongs to no cluster, as a server of kine (k3s)",
			"Use an etcd cluster: such a server keeps no leases, on which locks rest.")
	case c.cluster == 0:
		c.cluster = cluster
	case c.cluster != cluster:
		c.fail("members", fmt.Sprintf("%s belongs to cluster %x, and one before it to %x", endpoint, cluster, c.cluster),
			"Give the endpoints of one cluster: a lock in one excludes none in the other.")
	}
	if err := session.CheckServerVersion(status.Version); err != nil {
		c.fail("version", endpoint+": "+err.Error(), "Upgrade this server before you rely on a lock.")
	} else {
		c.ok("version", "%s: %s", endpoint, status.Version)
	}
	if err := session.CheckServerRoles(status.Version); err != nil {
		c.leaks(err.Error())
	}
	if status.Leader == 0 {
		c.fail("members", endpoint+" has no leader", "A quorum of the members must run and reach each other.")
	}
	if status.IsLearner {
		c.warn("members", endpoint+" is a learner, which serves no locks", "Promote it, or remove it from --endpoints.")
	}
	for _, problem := range status.Errors {
		switch {
		case strings.Contains(problem, etcdserverpb.AlarmType_NOSPACE.String()):
			c.noSpace(endpoint + ": " + problem)
		case strings.Contains(problem, etcdserverpb.AlarmType_CORRUPT.String()):
			c.fail("alarms", endpoint+": "+problem, "Members disagree about their data: replace the one that is wrong.")
		case !strings.Contains(problem, "no leader"): // said above
			c.warn("alarms", endpoint+": "+problem, "")
		}
	}
	if len(status.Errors) == 0 {
		c.ok("alarms", "%s: none", endpoint)
	}
	const mib = 1 << 20
	used := fmt.Sprintf("%s: the database has %d MiB", endpoint, status.DbSize/mib)
	switch quota := status.DbSizeQuota; {
	case quota <= 0:
		c.info("space", used+"; this server does not tell its quota (2048 MiB unless it was set)")
	case float64(status.DbSize) > fullAt*float64(quota):
		c.warn("space", fmt.Sprintf("%s of %d MiB", used, quota/mib), "When it is full, nothing new can be locked. Compact "+
			"and defragment, or raise --quota-backend-bytes.")
	default:
		c.ok("space", "%s of %d MiB", used, quota/mib)
	}
}
