package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
)

const kickHelp = `Ask the holder of a lock, or a leader, to let go, and wait until it has. Who asks and why is
written into the holder's entry, told to the holder, and recorded.

A holder that reaches etcd learns of it at once, or within six seconds if this user may
not write session keys. Its contexts end, its Check
says why, and the lock is free when its work has ended: nothing overlaps. "holdfast
run" sends SIGTERM to its command, and SIGKILL after --drain. A holder that hangs or is
cut off from etcd is not affected. See which client holds with "holdfast show" first, and
give the --token that it shows: then no other holder is asked by mistake. Where the epoch
was raised and etcd's history is compacted, show gives the entry's revision instead. A
permit of a semaphore (--kind semaphore) has no token: its revision stands for it, too.

--force takes the lock away from a holder that does not let go. It is asked first, and
a few seconds later the next one may hold. A holder that is connected to etcd has been
told by then, and "holdfast run" has killed its command. But a holder that is paused or
cut off goes on until it continues, or until its own clock ends its lease, after up to
its TTL. Only a store that compares fencing tokens refuses what it writes. Without one
rather stop its process first, or wait for its TTL. In the end kick says whether the
holder has let go.

A leader (--kind election) ends its work and resigns; as a rule it campaigns again, behind
those that wait. "holdfast elect" does, and ends its command as "holdfast run" does. The
owner of a shard (--kind shard, NAME/INDEX) ends the shard's function. As the shard is
still assigned to it, it then owns it again, and calls the function anew.

Holders that are no processes of holdfast, and leaders under a prefix (--at), take no
requests: stop their processes, or revoke their lease (etcdctl lease revoke LEASE), which has the
consequences of --force.

A lock that is detached has no holder to ask: its ticket ends, and it is free at once.

The exit code is 0 when the holder has let go, or the lock was free, and with --wait 0
when it was asked; 75 when it still holds after --wait, or there is no holder yet. The role
needs to write the entries of the lock; to say in the end how a hold under a prefix (--at)
has ended, it also reads the claims of that prefix.`

const kickExamples = `  holdfast show billing/job-7
  holdfast kick billing/job-7 --token 1042 --reason "stuck since 3 a.m., see INC-7"
  holdfast kick billing/job-7 --token 1042 --reason "host is gone" --force
  holdfast kick scheduler --kind election --reason "moves to the new host"`

type kicker struct {
	place  place
	token  int64
	reason string
	force  bool
	wait   time.Duration
}

func newKick(a *app) *cobra.Command {
	k := &kicker{}
	cmd := &cobra.Command{
		Use: "kick NAME --reason TEXT [flags]", Short: "Ask a holder or a leader to let go, or take the name away",
		Long: kickHelp, Example: kickExamples,
		Args: exactly(1, "one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			k.place.name = args[0]
			switch {
			case k.reason == "":
				return usage("kick needs a --reason, which the holder and the records get")
			case k.token < 0 || k.wait < 0:
				return usage("--token and --wait must not be negative")
			}
			return a.withClient(cmd.Context(), func(cli *clientv3.Client) error {
				return k.run(cmd.Context(), a, cmd.OutOrStdout(), a.admin(cli), cli)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&k.reason, "reason", "", "why, 1 to 256 bytes")
	f.Int64Var(&k.token, "token", 0, "of the holder, as \"holdfast show\" tells it; of a permit, its revision\n"+
		"(default: that of the only one)")
	f.BoolVar(&k.force, "force", false, "take the lock away, whatever the holder does")
	f.DurationVar(&k.wait, "wait", 15*time.Second, "how `long` to wait until the holder has let go; 0: not at all")
	k.place.addKind(cmd, "what NAME is: lock, tree, semaphore, election or shard")
	f.BoolVar(&k.place.at, "at", false, "NAME is a prefix of etcd's own clients")
	return cmd
}

// operator is who asks.
func operator() string {
	host, _ := os.Hostname() // unknown is as good as empty here
	name := "uid " + fmt.Sprint(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return name + "@" + host
}

type kickJSON struct {
	Name   string         `json:"name"`
	Token  holdfast.Token `json:"token,omitzero"`
	Forced bool           `json:"forced"`
	Free   bool           `json:"free"`
	LetGo  *bool          `json:"let_go,omitempty"`
	Holder *entryJSON     `json:"holder,omitempty"`
}

func (k *kicker) run(ctx context.Context, a *app, out io.Writer, adm *admin.Client, cli *clientv3.Client) error {
	asking, cancel := a.bounded(ctx)
	defer cancel()
	q, err := k.place.show(asking, adm)
	if err != nil {
		return err
	}
	h, held := q.Holder()
	token := holdfast.Token(k.token)
	switch holders := q.Holders(); {
	case !held && len(q.Entries) > 0:
		return &exitError{exitNotAcquired, fmt.Errorf("%s has no holder yet: the first of %d that wait holds it when the "+
			"lock delay is over; see \"holdfast show\"", k.lock(), len(q.Entries))}
	case !held && k.place.of() == holdfast.KindShard:
		all, err := a.readShards(asking, cli, k.place.name)
		if n := len(all.owners.Owners); err != nil || n > 0 {
			return cmp.Or(err, usage("%s are %d shards: give one of them, such as %[1]s/0", k.place.name, n))
		}
		fallthrough
	case !held:
		return k.print(a, out, kickJSON{Name: k.place.name, Free: true}, "%s is free", k.lock())
	case h.Released() && !k.force:
		return fmt.Errorf("%s was released, and stays taken until %s (--min-hold): there is no holder to ask; "+
			"--force frees it", k.lock(), exact(h.TakenUntil))
	case token == 0 && len(holders) > 1:
		return usage("%d clients hold %s: give the --token of one, see \"holdfast show\"", len(holders), k.lock())
	case token == 0:
		token = cmp.Or(h.Token, holdfast.Token(h.Revision)) // the epoch may not be known any more
	default:
		if i := slices.IndexFunc(q.Entries, has(token)); i >= 0 { // one that waits now may hold when it is asked
			h = q.Entries[i]
		}
	}
	err = k.ask(asking, adm, token)
	if errors.Is(err, admin.ErrNotTold) {
		advice := "stop its process"
		if end := endCommand(h); end != "" && has(token)(h) { // else h is another holder than the one that was meant
			advice += "; or, with the consequences of --force: " + end
		}
		return fmt.Errorf("%w\n%s", err, advice)
	}
	if err != nil {
		return err
	}
	entry := asJSON(h)
	did := kickJSON{Name: k.place.name, Token: token, Forced: k.force, Holder: &entry}
	if h.Weight > 0 { // a permit has none
		did.Token = 0
	}
	how, unknown := unknownEnd, error(nil)
	var looked error
	if k.wait == 0 && h.Detached() { // one look: its ticket has ended, unless a process had attached it before
		var holds bool
		holds, looked = k.holds(asking, adm, token)
		did.Free = !holds
	}
	if k.wait > 0 {
		did.Free, err = k.awaitEnd(ctx, a, adm, token)
		if err != nil {
			return fmt.Errorf("%s was asked to let go; whether it still holds %s is not known: %w", owner(h, 0), k.lock(), err)
		}
		if did.Free && !h.Detached() {
			how, unknown = a.ending(ctx, cli, k.place.queue(a.namespace), h, q.Revision)
		}
	}
	switch {
	case did.Free && h.Detached():
		return k.print(a, out, did, "%s was detached by %s, and is free: its ticket has ended", k.lock(), owner(h, 0))
	case did.Free && how == letGo:
		did.LetGo = new(true)
		return k.print(a, out, did, "%s has let go of %s", owner(h, 0), k.lock())
	case did.Free && how == leaseEnded:
		did.LetGo = new(false)
		return k.print(a, out, did, takenAway, k.lock(), owner(h, 0))
	case did.Free:
		return k.print(a, out, did, "%s does not hold %s any more; whether it has let go, or its lease has ended, "+
			"is not known: %v", owner(h, 0), k.lock(), unknown)
	case k.wait == 0:
		return cmp.Or(k.print(a, out, did, "%s was asked to let go of %s", owner(h, 0), k.lock()), looked)
	}
	err = k.print(a, out, did, "%s still holds %s after %v", owner(h, 0), k.lock(), k.wait)
	if err == nil {
		err = &exitError{exitNotAcquired, fmt.Errorf("it is still held: see --force in \"holdfast kick --help\"")}
	}
	return err
}

// endCommand returns a command that ends a hold, to paste into a shell; "" if a shell could not be given its key.
func endCommand(h admin.Entry) string {
	if h.Lease != clientv3.NoLease {
		return "etcdctl lease revoke " + hex(h)
	}
	key, ok := shellWord(h.Key) // anyone who may write below the prefix has chosen it
	if !ok {
		return ""
	}
	return "etcdctl del " + key
}

// lock is what is kicked, for sentences.
func (k *kicker) lock() string { return k.place.kind.noun() + " " + clean(k.place.name, 0) }

func (k *kicker) ask(ctx context.Context, adm *admin.Client, token holdfast.Token) error {
	if k.force {
		return adm.Remove(ctx, k.place.of(), k.place.name, token, k.reason)
	}
	return adm.Kick(ctx, k.place.of(), k.place.name, token, k.reason)
}

// has reports whether an entry is the one with the token.
func has(token holdfast.Token) func(admin.Entry) bool {
	return func(e admin.Entry) bool { return e.Revision == token.Revision() }
}

// awaitEnd waits until the token is not that of a holder any more, for --wait at most. An error: that is not known.
func (k *kicker) awaitEnd(ctx context.Context, a *app, adm *admin.Client, token holdfast.Token) (bool, error) {
	looks, over := time.NewTicker(200*time.Millisecond), time.After(k.wait)
	defer looks.Stop()
	for {
		looking, cancel := a.bounded(ctx)
		holds, err := k.holds(looking, adm, token)
		cancel()
		if err != nil || !holds {
			return !holds, err
		}
		select {
		case <-looks.C:
		case <-over:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// holds reports whether the token is that of a holder; true after an error.
func (k *kicker) holds(ctx context.Context, adm *admin.Client, token holdfast.Token) (bool, error) {
	q, err := k.place.show(ctx, adm)
	return err != nil || slices.ContainsFunc(q.Holders(), has(token)), err
}

func (k *kicker) print(a *app, out io.Writer, did kickJSON, format string, args ...any) error {
	if a.output == "json" {
		return printJSON(out, did)
	}
	_, err := fmt.Fprintf(out, format+"\n", args...)
	return err
}
