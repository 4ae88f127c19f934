package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
)

const jsonHelp = `With -o json each command prints objects, one on a line. Fields keep their names
and meaning within a major version; new ones may be added. A field is absent
where its value is not known.

An entry, one holder or waiter:

    key             its key in etcd
    owner           what its process calls itself, as a rule HOST:PID
    host, pid       of its process
    value           of an election: the candidate's value; of a tree lock that is
                    below the path that was asked for: its own path
    queued_at       when it queued, RFC 3339, by the clock of its process
    held_at         since when it holds, likewise; absent in the first second
    token           its fencing token, a string of digits; where it is absent,
                    and for a permit, "kick" takes the revision
    revision        etcd's revision that created it: the order of the queue
    lease           its lease, in hex as etcdctl has it
    ttl_seconds     until its lease expires unless it is renewed
    taken_until     released; the name stays taken until then (run --min-hold)
    detached_until  detached: a ticket lets another process hold until then
    shared          true: a reader's; others may hold beside it
    weight          of a permit: for how many it counts
    unclaimed       true: etcd has lost its claim; if its lease is revoked early, those
                    behind it do not wait
    foreign         true: of another client than holdfast, such as etcdctl lock
    notice          what an administrator wants (see "holdfast help kick"): by,
                    reason, at, removed (true: the lock is taken away)

"ls":      kind ("lock", "tree", "semaphore", "election", "shard"), name, waiting,
           held (false: a lock delay runs, and holder is the first that waits),
           holder (an entry without token and ttl_seconds)
"ls --watch": the same after each change, and revision, waits_since (when the one queued
           that has waited longest); without holder: the name is free
"ls --sessions": owner, host, pid, lease, revision
"show":    kind, name, revision, held, waiting (a count), limit (of a semaphore),
           entries (the holder or holders, then those who wait, in their order),
           dead_claims (of entries that went without a release; entries of later
           revisions wait for them): lease and revision of the entry, key,
           lock_delay_ms, told_within_ms (to be waited for if its session lives),
           last_run (of a job whose runs are recorded): at, slot, token, owner, host,
           pid, due (when the next one is), overdue
"show --kind shard NAME": kind, name, revision, members (name, owned, processes
           of that name, retiring, settling (it has joined, and takes no shards yet), absent, out_of_service,
           drained (by an operator), weight, max_shards, zone),
           left_over (for how many no member has room), pins (shard, member, by, at, until, in_force),
           shards (shard, owner, value, host, pid, held_at, revision, assigned)
"watch --kind shard NAME": event ("owned", "unowned"), before (the owner), store_revision,
           and the fields of a shard, without assigned
"watch":   event ("queued", "acquired", "released", "left", "lost", "gone",
           "taken", "detached", "attached", "kicked", "removed"), revision, waiting (a
           count), entry (without ttl_seconds)
"explain": entry (without token and ttl_seconds), held and ended (revisions),
           held_before (true: it held at the first revision), end (how the entry went),
           asked (notices), cause (of the loss, or "released"; absent: not known)
"kick":    name, token, forced, free (false: it still holds), let_go (false: it was
           taken away, or its lease has ended), holder (an entry)
"epoch":   namespace, epoch
"shards resize": name, before, shards (how many there were, and are)
"shards drain", "shards undrain": name, member, drained (now), was_drained (before undrain)
"shards move": name, shard, member, until, replaced (the member of the pin before)
"check":   check, result ("ok", "warning", "failed", "info"), detail, advice; the
           last line has fit (true or false) instead
`

// entryJSON is an entry as jsonHelp describes it.
type entryJSON struct {
	Key      string         `json:"key"`
	Owner    string         `json:"owner,omitempty"`
	Host     string         `json:"host,omitempty"`
	PID      int            `json:"pid,omitempty"`
	Value    string         `json:"value,omitempty"`
	QueuedAt *time.Time     `json:"queued_at,omitempty"`
	HeldAt   *time.Time     `json:"held_at,omitempty"`
	Token    holdfast.Token `json:"token,omitzero"`
	Revision int64          `json:"revision"`
	Lease    string         `json:"lease"`
	TTL      *float64       `json:"ttl_seconds,omitempty"`
	Taken    *time.Time     `json:"taken_until,omitempty"`
	Detached *time.Time     `json:"detached_until,omitempty"`
	Foreign  bool           `json:"foreign"`
	Shared   bool           `json:"shared,omitempty"`
	Weight   int            `json:"weight,omitempty"`
	NoClaim  bool           `json:"unclaimed,omitempty"`
	Notice   *noticeJSON    `json:"notice,omitempty"`
}

type noticeJSON struct {
	By      string    `json:"by"`
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
	Removed bool      `json:"removed"`
}

func asJSON(e admin.Entry) entryJSON {
	j := entryJSON{
		Key: e.Key, Owner: e.Owner, Host: e.Host, PID: e.PID, Value: e.Value, Token: e.Token, Revision: e.Revision,
		Lease: hex(e), Foreign: e.Foreign, Shared: e.Shared, Weight: e.Weight, NoClaim: e.Unclaimed,
		QueuedAt: known(e.QueuedAt), HeldAt: known(e.HeldAt), Taken: known(e.TakenUntil),
		Detached: known(e.DetachedUntil),
	}
	if n := e.Notice; !n.At.IsZero() {
		j.Notice = &noticeJSON{n.By, n.Reason, n.At.UTC(), n.Removed}
	}
	if e.TTL > 0 {
		seconds := e.TTL.Seconds()
		j.TTL = &seconds
	}
	return j
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func hex(e admin.Entry) string { return strconv.FormatInt(int64(e.Lease), 16) }

// printJSON prints one line.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// columns is the width of a terminal, or 0 for a pipe or a file: there nothing is cut.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		return width
	}
	return 80
}

// room is what is left of some columns, at least a few; 0, no limit, if there is none.
func room(columns, taken int) int {
	if columns == 0 {
		return 0
	}
	return max(8, columns-taken)
}

// wider is the width of a column that is some characters wide on a terminal of 80, and gets half of what is more.
func wider(columns, at80 int) int {
	if columns == 0 {
		return 0
	}
	return at80 + max(0, columns-80)/2
}

// clean returns text that came from etcd so that it cannot move the cursor, and with at most width characters; 0: all.
// It is cut in the middle: pods of one Deployment differ at the end, and processes of one host, too.
func clean(text string, width int) string {
	quoted := strconv.QuoteToGraphic(text)
	if !utf8.ValidString(text) || quoted != `"`+text+`"` {
		text = quoted
	}
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	runes := []rune(text)
	head := (width - 1) / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(width-1-head):])
}

// shellWord returns text as one word of a POSIX shell, quoted if need be. It reports false if text cannot be printed as
// it is, because of a control character or bytes that are no UTF-8: a terminal or an editor could change it.
func shellWord(text string) (word string, ok bool) {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/@%+=:,._-"
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return "", false
	}
	if text != "" && text[0] != '-' && strings.Trim(text, plain) == "" {
		return text, true
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'", true
}

// owner is who an entry belongs to, in at most width characters. A candidate of election.NewAt, as one of another
// client, has its value only.
func owner(e admin.Entry, width int) string {
	switch {
	case e.Owner != "":
		return clean(e.Owner, width)
	case e.Host != "":
		return clean(fmt.Sprintf("%s:%d", e.Host, e.PID), width)
	case e.Value != "" && !e.Shared: // that of a reader is a path
		return clean(e.Value, width)
	case e.Foreign:
		return clean("another client", width)
	default:
		return clean("(anonymous)", width)
	}
}

// age is how long ago t was, in at most 7 characters. A clock that is ahead of ours gives 0 s.
func age(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := max(0, now.Sub(t)).Truncate(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	case d < 1000*24*time.Hour:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	default:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	}
}

// exact is a moment to the second, in UTC.
func exact(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// since is a moment, and how long ago it was.
func since(t, now time.Time) string {
	if t.IsZero() {
		return "not known"
	}
	return fmt.Sprintf("%s (%s ago)", exact(t), age(t, now))
}

// heldSince is when a holder began to hold; up to a second after that only when it queued is known.
func heldSince(e admin.Entry) time.Time {
	if e.HeldAt.IsZero() {
		return e.QueuedAt
	}
	return e.HeldAt
}

func ttl(e admin.Entry) string {
	if e.TTL <= 0 {
		return "-"
	}
	return fmt.Sprintf("%ds", int(e.TTL.Seconds()))
}
