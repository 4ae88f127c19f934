package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A member that refuses its status to a user runs: nothing is to be started.
func TestMemberThatRefusesItsStatusIsNotTakenForStopped(t *testing.T) {
	for err, refused := range map[error]bool{rpctypes.ErrPermissionDenied: true, context.DeadlineExceeded: false} {
		var said finding
		c := &checker{findings: findings{print: func(f finding) { said = f }}}
		c.silent("etcd-0:2379", err)
		if said.Result != "warning" || (said.Advice == asRoot) != refused {
			t.Errorf("%v: %+v", err, said)
		}
	}
}

// A session would send its requests to both.
func TestEndpointOfAnotherClusterIsNotFit(t *testing.T) {
	var failed []finding
	c := &checker{findings: findings{print: func(f finding) {
		if f.Result == "failed" {
			failed = append(failed, f)
		}
	}}}
	for i, cluster := range []uint64{0xa, 0xa, 0xb} {
		c.member(fmt.Sprint("etcd-", i), &clientv3.StatusResponse{
			Header: &etcdserverpb.ResponseHeader{ClusterId: cluster}, Version: "3.6.16", Leader: 1,
		})
	}
	if len(failed) != 1 || !strings.Contains(failed[0].Detail, "etcd-2 belongs to cluster b, and one before it to a") {
		t.Errorf("failed: %+v", failed)
	}
}

// authStatus answers whether auth is on.
type authStatus struct {
	clientv3.Auth // nil: a check calls AuthStatus only

	on  bool
	err error
}

func (a authStatus) AuthStatus(context.Context) (*clientv3.AuthStatusResponse, error) {
	return (*clientv3.AuthStatusResponse)(&etcdserverpb.AuthStatusResponse{Enabled: a.on}), a.err
}

// GHSA-xg4h-6gfc-h4m8 is told where auth is on, or may be.
func TestServersThatDoNotKeepUsersToTheirRolesAreToldWhereAuthIsOn(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		version string // "": refused to this user
		auth    authStatus
		says    string // "": nothing
	}{
		"auth is on":           {"3.7.0", authStatus{on: true}, "3.7.0 does not keep users to their roles"},
		"auth is off":          {"3.7.0", authStatus{}, ""},
		"not for this user":    {"3.6.13", authStatus{err: rpctypes.ErrPermissionDenied}, "3.6.13 does not keep"},
		"not answered":         {"3.5.32", authStatus{err: refused}, "Whether auth is on could not be asked: refused"},
		"version with the fix": {"3.7.1", authStatus{on: true}, ""},
		"version refused":      {"", authStatus{err: refused}, "does not tell this user its version"},
	} {
		t.Run(name, func(t *testing.T) {
			var said []string
			check := &checker{cli: &clientv3.Client{Auth: c.auth}, findings: findings{print: func(f finding) {
				if f.Check == "roles" {
					said = append(said, f.Result+" "+f.Detail+" "+f.Advice)
				}
			}}}
			for range 3 { // of one version, so it is said once
				if c.version == "" {
					check.silent("etcd-0:2379", rpctypes.ErrPermissionDenied)
				} else {
					check.member("etcd-0:2379", &clientv3.StatusResponse{
						Header: &etcdserverpb.ResponseHeader{ClusterId: 1}, Version: c.version, Leader: 1,
					})
				}
			}
			check.roles(t.Context(), time.Minute)
			all := strings.Join(said, "\n")
			if len(said) != map[bool]int{true: 1}[c.says != ""] || !strings.Contains(all, c.says) ||
				strings.Count(all, "GHSA-xg4h-6gfc-h4m8") > 1 || check.failed {
				t.Errorf("said %q, want %q", said, c.says)
			}
		})
	}
}

// full refuses what would write, as a server whose store is full.
type full struct{ clientv3.Lease }

func (full) Grant(context.Context, int64) (*clientv3.LeaseGrantResponse, error) {
	return nil, rpctypes.ErrNoSpace
}

type fullKV struct{ clientv3.KV }

func (fullKV) Txn(context.Context) clientv3.Txn { return fullTxn{writes: new(bool)} }

type fullTxn struct{ writes *bool }

func (t fullTxn) If(...clientv3.Cmp) clientv3.Txn { return t }

func (t fullTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		*t.writes = *t.writes || op.IsPut()
	}
	return t
}

func (t fullTxn) Else(...clientv3.Op) clientv3.Txn { return t }

func (t fullTxn) Commit() (*clientv3.TxnResponse, error) {
	if *t.writes {
		return nil, rpctypes.ErrNoSpace
	}
	return new(clientv3.TxnResponse), nil
}

// A user whom etcd does not show its alarms is told of a full store by what is refused, once, whatever is checked.
func TestFullStoreIsToldToAUserWhoMaySeeNoAlarm(t *testing.T) {
	for name, check := range map[string]func(c *checker){
		"what it may": func(c *checker) { c.permissions(t.Context(), time.Second) },
		"what it may not and needs": func(c *checker) {
			c.needs = []string{"inspect"}
			c.permissions(t.Context(), time.Second)
			c.times(t.Context(), time.Second)
		},
		"times": func(c *checker) { c.times(t.Context(), time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			var alarms []finding
			c := &checker{
				cli: &clientv3.Client{KV: fullKV{}, Lease: full{}}, namespace: "holdfast", samples: 1,
				findings: findings{print: func(f finding) {
					if f.Check == "alarms" {
						alarms = append(alarms, f)
					}
				}},
			}
			c.silent("etcd-0:2379", rpctypes.ErrPermissionDenied)
			check(c)
			if len(alarms) != 1 || alarms[0].Result != "failed" || !c.failed {
				t.Errorf("told %+v, unfit %v", alarms, c.failed)
			}
		})
	}
}
