package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
	"github.com/holdfast-go/holdfast/internal/names"
)

// need is a permission.
type need struct {
	key        string // or prefix
	prefix     bool
	permission string // read, readwrite
}

// purposes are the values of --for.
var purposes = []string{
	"lock", "tree", "semaphore", "election", "shard", "member", "observe", "inspect", "admin", "ring", "epoch",
}

// permissions are those that docs/client.md lists, for each value of --for.
var permissions = map[string]func(namespace, name string) []need{
	"lock":      func(ns, name string) []need { return entriesOf(ns, holdfast.KindLock, name) },
	"tree":      func(ns, _ string) []need { return entriesOf(ns, holdfast.KindTree, "") }, // with the paths above
	"semaphore": func(ns, name string) []need { return entriesOf(ns, holdfast.KindSemaphore, name) },
	"election":  func(ns, name string) []need { return entriesOf(ns, holdfast.KindElection, name) },
	"shard": func(ns, name string) []need {
		all := entriesOf(ns, holdfast.KindShard, "")
		members := need{layout.Names(ns, "member") + "shard/", true, "readwrite"}
		if name != "" {
			all[2].key += name + "/" // the entries of NAME/0, NAME/1 and so on, and the count
			members.key += name + "/"
		}
		return append(all, members)
	},
	"member": func(ns, name string) []need {
		group := layout.Names(ns, "member")
		if name != "" {
			group = layout.Members(ns, name).Entries
		}
		return []need{{layout.SessionKeys(ns), true, "readwrite"}, {group, true, "readwrite"}}
	},
	"admin": func(ns, _ string) []need {
		lock, tree := layout.Names(ns, holdfast.KindLock), layout.Names(ns, holdfast.KindTree)
		return []need{{names.EpochKey(ns), false, "read"}, {lock, true, "readwrite"}, {tree, true, "readwrite"}}
	},
	"ring": func(ns, _ string) []need { return []need{{layout.SessionKeys(ns), true, "readwrite"}} }, // the bell
	"inspect": func(ns, name string) []need {
		all := []need{{names.EpochKey(ns), false, "read"}}
		for _, kind := range append(slices.Clone(layout.Kinds), "member") {
			all = append(all, need{layout.Names(ns, kind), true, "read"})
		}
		return append(all, need{layout.SessionKeys(ns), true, "read"})
	},
	"observe": func(ns, name string) []need {
		entries := entriesOf(ns, holdfast.KindElection, name)[2]
		return []need{{names.EpochKey(ns), false, "read"}, {entries.key, true, "read"}}
	},
	"epoch": func(ns, _ string) []need { return []need{{names.EpochKey(ns), false, "readwrite"}} },
}

// purposesAt are those that have to do with a prefix of etcd's own clients.
var purposesAt = []string{"lock", "election", "observe", "inspect", "admin"}

// permissionsAt are the permissions for a prefix. Its claims stand in the namespace, since etcd's own clients would
// wait for them. Without the right to them none is delayed after a loss.
func permissionsAt(purpose, ns, prefix string) []need {
	q, permission := layout.At(ns, holdfast.KindLock, prefix), "readwrite"
	if purpose == "observe" || purpose == "inspect" {
		permission = "read"
	}
	all := []need{
		{names.EpochKey(ns), false, "read"}, {q.Entries, true, permission}, {q.Claims, true, permission},
	}
	switch purpose {
	case "lock", "election":
		all = append(all, need{layout.SessionKeys(ns), true, "readwrite"})
	case "inspect":
		all = append(all, need{layout.SessionKeys(ns), true, "read"})
	}
	return all
}

// purposesAll have to do with all names of a namespace: --name cannot limit them.
var purposesAll = []string{"tree", "inspect", "admin"}

// needsOf are the permissions for a purpose, of a prefix with at.
func needsOf(purpose, ns, name string, at bool) []need {
	if at {
		return permissionsAt(purpose, ns, name)
	}
	return permissions[purpose](ns, name)
}

func entriesOf(ns string, kind holdfast.Kind, name string) []need {
	prefix := layout.Names(ns, kind)
	if name != "" {
		prefix = layout.Named(ns, kind, name).Own() // the limit of a semaphore is beside its entries
	}
	return []need{
		{names.EpochKey(ns), false, "read"}, {layout.SessionKeys(ns), true, "readwrite"}, {prefix, true, "readwrite"},
	}
}

// wanted are the permissions for some purposes. A role has one permission for a key: the larger one is wanted.
func (c *checker) wanted(goals []string) (all []need) {
	for _, purpose := range goals {
		for _, n := range needsOf(purpose, c.namespace, c.name, c.at) {
			same := func(other need) bool { return other.key == n.key }
			if i := slices.IndexFunc(all, same); i < 0 {
				all = append(all, n)
			} else if n.permission == "readwrite" {
				all[i] = n
			}
		}
	}
	return all
}

// usual is what a user is told to lack that may do nothing.
var usual = []string{"lock", "election"}

// permissions judges what --for tells. Without it, it finds out what the user may do: each role is good for something.
func (c *checker) permissions(ctx context.Context, timeout time.Duration) {
	answers := make(map[need]error)
	ask := func(n need) error {
		if _, asked := answers[n]; !asked {
			asking, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			_, answers[n] = n.probe(asking, c.cli)
		}
		if c.refusedFull(answers[n]) {
			return nil // it is no matter of permissions
		}
		return answers[n]
	}
	if len(c.needs) > 0 {
		c.judge(c.needs, ask)
	} else {
		c.findOut(ask)
	}
	if !c.secure {
		c.warn("permission", "the connection is not encrypted: what passes by can be read and changed",
			"Use https:// endpoints and --cacert.")
	}
}

// findOut tells what the user may do, and fails if that is nothing.
func (c *checker) findOut(ask func(need) error) {
	var may, not []string
	for _, purpose := range purposes {
		if purpose == "ring" && !slices.Contains(may, "admin") {
			continue // who locks may ring, and has nothing to ring for
		}
		lacks := func(n need) bool { return exitCode(ask(n)) == exitDenied }
		if slices.ContainsFunc(needsOf(purpose, c.namespace, c.name, c.at), lacks) {
			not = append(not, purpose)
		} else {
			may = append(may, purpose)
		}
	}
	if len(may) == 0 {
		c.judge(usual, ask)
		c.info("permission", "a user with a role for one name needs --name, one with another role --for")
		return
	}
	c.judge(may, ask) // etcd may have failed to answer
	if len(not) > 0 {
		c.info("permission", "not for "+strings.Join(not, ", ")+"; \"holdfast check --for\" tells what is missing")
	}
}

// judge tells whether the user may do something.
func (c *checker) judge(goals []string, ask func(need) error) {
	granted := true
	for _, n := range c.wanted(goals) {
		err := ask(n)
		if err == nil {
			continue
		}
		granted = false
		flag := ""
		if n.prefix {
			flag = "--prefix "
		}
		advice := fmt.Sprintf("etcdctl role grant-permission %sROLE %s %s", flag, n.permission, n.key)
		if exitCode(err) != exitDenied {
			advice = ""
		}
		c.fail("permission", fmt.Sprintf("%s %s: %v", n.permission, n.key, err), advice)
	}
	if granted {
		c.ok("permission", "for %s", strings.Join(goals, ", "))
	}
}

// probe asks for a permission and returns how long that took. etcd checks the permissions of both branches of a
// transaction, and the branch with the put is never taken: no key has a create revision below 0. With a put in it the
// transaction goes through etcd's log like any write, although it changes nothing.
func (n need) probe(ctx context.Context, cli *clientv3.Client) (time.Duration, error) {
	key := n.key
	if n.prefix {
		key += "check"
	}
	get := clientv3.OpGet(key, clientv3.WithCountOnly())
	if n.prefix {
		get = clientv3.OpGet(n.key, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	}
	never := clientv3.Compare(clientv3.CreateRevision(key), "<", 0)
	ops := []clientv3.Op{get}
	if n.permission == "readwrite" {
		ops = append(ops, clientv3.OpPut(key, ""))
	}
	begun := time.Now()
	_, err := cli.Txn(ctx).If(never).Then(ops...).Commit()
	return time.Since(begun), withConnection(cli, err)
}
