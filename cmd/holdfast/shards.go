package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/shard"
)

// shards are all shards of a name, and their members.
type shards struct {
	name    string
	owners  shard.Owners
	group   member.Group
	unknown error // why the members are not known
}

// readShards reads them; there are none if name is that of a single shard, or of nothing.
func (a *app) readShards(ctx context.Context, cli *clientv3.Client, name string) (shards, error) {
	r := a.shardReader(cli, name)
	owners, err := r.Owners(ctx)
	if err != nil || len(owners.Owners) == 0 {
		return shards{}, err
	}
	members := member.NewReader(cli, r.Group()).With(member.ReaderOptions{Namespace: a.namespace})
	group, unknown := members.Members(ctx)
	if ctx.Err() != nil {
		return shards{}, unknown
	}
	return shards{name, owners, group, unknown}, nil
}

func (a *app) shardReader(cli *clientv3.Client, name string) *shard.Reader {
	return shard.NewReader(cli, name).With(shard.ReaderOptions{Namespace: a.namespace})
}

func (a *app) printShards(w io.Writer, s shards, err error) error {
	switch {
	case err != nil:
		return err
	case a.output == "json":
		if s.unknown != nil {
			fmt.Fprintln(os.Stderr, "holdfast: members not known:", s.unknown)
		}
		return printJSON(w, s.asJSON())
	}
	_, err = fmt.Fprint(w, strings.Join(s.describe(time.Now(), columns(w)), "\n")+"\n")
	return err
}

func (a *app) watchShards(ctx context.Context, w io.Writer, cli *clientv3.Client, name string, err error) error {
	if err != nil {
		return err
	}
	return a.printMoves(w, a.shardReader(cli, name).Watch(ctx))
}

type shardsJSON struct {
	Kind     holdfast.Kind `json:"kind"`
	Name     string        `json:"name"`
	Revision int64         `json:"revision"`
	Members  []memberJSON  `json:"members,omitzero"` // absent: not known
	LeftOver int           `json:"left_over,omitempty"`
	Pins     []pinJSON     `json:"pins,omitempty"`
	Shards   []shardJSON   `json:"shards"`
}

type pinJSON struct {
	Shard   int       `json:"shard"`
	Member  string    `json:"member"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	Until   time.Time `json:"until"`
	InForce bool      `json:"in_force"`
}

type memberJSON struct {
	Name      string `json:"name"`
	Owned     int    `json:"owned"`
	Processes int    `json:"processes"` // of that name; more than one, for longer than a moment, is a mistake
	Retiring  bool   `json:"retiring,omitempty"`
	Settling  bool   `json:"settling,omitempty"` // it has joined, and waits for others before it takes shards
	Absent    bool   `json:"absent,omitempty"`

	OutOfService bool       `json:"out_of_service,omitempty"`
	Drained      *drainedBy `json:"drained,omitempty"`
	Weight       int        `json:"weight,omitempty"`
	MaxShards    int        `json:"max_shards,omitempty"`
	Zone         string     `json:"zone,omitempty"`
}

// drainedBy is the operator who has taken a member out of service.
type drainedBy struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
}

type shardJSON struct {
	Shard    int        `json:"shard"`
	Owner    string     `json:"owner,omitempty"`
	Value    string     `json:"value,omitempty"`
	Host     string     `json:"host,omitempty"`
	PID      int        `json:"pid,omitempty"`
	HeldAt   *time.Time `json:"held_at,omitempty"`
	Revision int64      `json:"revision,omitempty"`
	Assigned string     `json:"assigned,omitempty"`
}

func shardAsJSON(index int, o shard.Owner) shardJSON {
	return shardJSON{
		Shard: index, Owner: o.Member, Value: o.Value, Host: o.Host, PID: o.PID, HeldAt: known(o.Since),
		Revision: o.Revision,
	}
}

func (s shards) asJSON() shardsJSON {
	j := shardsJSON{Kind: holdfast.KindShard, Name: s.name, Revision: s.owners.Revision}
	assigned := shard.Assigned(s.group, len(s.owners.Owners))
	if s.unknown == nil {
		j.Members = append([]memberJSON{}, s.members(time.Now())...)
		j.LeftOver, j.Pins = leftOver(assigned), s.pins(assigned)
	}
	for index, o := range s.owners.Owners {
		one := shardAsJSON(index, o)
		one.Assigned = assigned[index]
		j.Shards = append(j.Shards, one)
	}
	return j
}

// members are those of the group, each name once, and those that are gone and were drained.
func (s shards) members(now time.Time) (all []memberJSON) {
	settling, owned := shard.Settling(s.group, now), make(map[string]int)
	for _, o := range s.owners.Owners {
		owned[o.Member]++
	}
	of := func(m member.Info) memberJSON {
		return memberJSON{
			Name: m.Name, Owned: owned[m.Name], Retiring: m.Retiring, OutOfService: m.OutOfService, Weight: m.Weight,
			MaxShards: m.MaxShards, Zone: m.Zone,
			Settling: owned[m.Name] == 0 && slices.Contains(settling, m.Name), // by clocks; who owns a shard has settled
		}
	}
	for _, m := range s.group.Members {
		one := of(m)
		if i := len(all) - 1; i >= 0 && all[i].Name == m.Name { // by name; what the youngest says counts
			one.Processes = all[i].Processes
			one.Retiring = all[i].Retiring && m.Retiring
			one.OutOfService = all[i].OutOfService && m.OutOfService
			all = all[:i]
		}
		one.Processes++
		all = append(all, one)
	}
	for _, m := range s.group.Absent {
		one := of(m)
		one.Absent = true
		all = append(all, one)
	}
	for _, d := range s.group.Drained {
		i := slices.IndexFunc(all, func(m memberJSON) bool { return m.Name == d.Member })
		if i < 0 {
			i = len(all)
			all = append(all, memberJSON{Name: d.Member, Owned: owned[d.Member]})
		}
		all[i].Drained = &drainedBy{d.By, d.At}
	}
	slices.SortStableFunc(all, func(a, b memberJSON) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// state says what is unusual of a member.
func (m memberJSON) state() (all string) {
	add := func(is bool, format string, args ...any) {
		if is {
			all += ", " + fmt.Sprintf(format, args...)
		}
	}
	add(m.Retiring, "retiring")
	add(m.Settling, "has not settled")
	add(m.Absent, "absent, expected back")
	add(m.OutOfService, "out of service")
	if m.Drained != nil {
		add(true, "drained by %s", clean(m.Drained.By, 0))
		add(m.Processes == 0 && !m.Absent, "gone")
	}
	add(m.Weight > 1, "weight %d", m.Weight)
	add(m.MaxShards > 0, "at most %d", m.MaxShards)
	add(m.Zone != "", "zone %s", clean(m.Zone, 0))
	add(m.Processes > 1, "%d processes have this name", m.Processes)
	return all
}

func (s shards) pins(assigned []string) (all []pinJSON) {
	for _, p := range s.group.Pins {
		inForce := p.Shard < len(assigned) && assigned[p.Shard] == p.Member
		all = append(all, pinJSON{p.Shard, p.Member, p.By, p.At, p.Until, inForce})
	}
	return all
}

// leftOver returns for how many shards no member has room.
func leftOver(assigned []string) (n int) {
	for _, to := range assigned {
		if to == "" {
			n++
		}
	}
	return n
}

// describe is a table in lines. Owners come last and are not shortened.
func (s shards) describe(now time.Time, columns int) []string {
	unowned := 0
	for _, o := range s.owners.Owners {
		if o.Key == "" {
			unowned++
		}
	}
	title := fmt.Sprintf("shard %s: %d shards, %d without an owner", clean(s.name, 0), len(s.owners.Owners), unowned)
	lines := []string{title}
	for _, m := range s.members(now) {
		lines = append(lines, fmt.Sprintf("  member  %5d owned  %s%s", m.Owned, clean(m.Name, 0), m.state()))
	}
	assigned := shard.Assigned(s.group, len(s.owners.Owners))
	for _, p := range s.pins(assigned) {
		not := ""
		if !p.InForce {
			not = ", not in force: its member is absent, out of service, or full"
		}
		lines = append(lines, fmt.Sprintf("  pin     shard %d to %s until %s, by %s%s", p.Shard, clean(p.Member, 0),
			exact(p.Until), clean(p.By, 0), not))
	}
	if left := leftOver(assigned); left > 0 && s.unknown == nil {
		lines = append(lines, fmt.Sprintf("  %d shards are left over: no member has room for them", left))
	}
	if s.unknown != nil {
		lines = append(lines, fmt.Sprintf("  members not known: %v", s.unknown))
	}
	width := wider(columns, 24)
	pad := max(24, width)
	const row = "%6v  %7s  %-*s  %s"
	lines = append(lines, "", fmt.Sprintf(row, "SHARD", "FOR", pad, "GOES TO", "OWNER"))
	for index, o := range s.owners.Owners {
		to := assigned[index]
		if to == o.Member {
			to = ""
		}
		lines = append(lines, fmt.Sprintf(row, index, age(o.Since, now), pad, orDash(clean(to, width)), ownerOf(o)))
	}
	return lines
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// ownerOf is the member that owns a shard.
func ownerOf(o shard.Owner) string {
	switch {
	case o.Key == "":
		return "-"
	case o.Member == "":
		return "another client"
	}
	return clean(o.Member, 0)
}

type moveJSON struct {
	Event  string `json:"event"`
	Before string `json:"before,omitempty"`
	At     int64  `json:"store_revision"`
	shardJSON
}

// printMoves tells who owns each shard, and then each change, until ctx ends.
func (a *app) printMoves(w io.Writer, owners iter.Seq2[shard.Owners, error]) error {
	var before history
	for now, err := range owners {
		if err != nil {
			return err
		}
		for _, m := range before.moves(now) {
			if a.output == "json" {
				err = printJSON(w, m)
			} else {
				_, err = fmt.Fprintln(w, moveLine(m, time.Now()))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// history is what has been told, and who owned each shard last.
type history struct {
	told shard.Owners
	last map[int]string
}

// moves are the changes since what was told. An entry that is written to, as when it says since when it is held, is
// none.
func (h *history) moves(now shard.Owners) (all []moveJSON) {
	if h.last == nil {
		h.last = make(map[int]string)
	}
	for index := range max(len(h.told.Owners), len(now.Owners)) {
		was, is := h.told.Owner(index), now.Owner(index)
		if was.Key == is.Key && was.Revision == is.Revision {
			continue
		}
		event := "owned"
		if is.Key == "" {
			event = "unowned"
		}
		all = append(all, moveJSON{event, h.last[index], now.Revision, shardAsJSON(index, is)})
		if is.Key != "" {
			h.last[index] = is.Member
		}
	}
	h.told = now
	return all
}

// moveLine is a move. The time is ours: etcd's history has none.
func moveLine(m moveJSON, now time.Time) string {
	line := fmt.Sprintf("%s  %-8s  shard %d", exact(now), m.Event, m.Shard)
	if m.Event == "owned" {
		line += "  by " + clean(m.Owner, 0)
	}
	if m.Before != "" {
		line += ", before by " + clean(m.Before, 0)
	}
	return line
}
