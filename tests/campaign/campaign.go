//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/etcdtest"
)

// options are those of a campaign.
type options struct {
	duration time.Duration // no round begins later
	rounds   int           // no more than these; 0: any number
	round    time.Duration // how long the faults of a round last
	seed     uint64
	workers  int
	members  int    // 0: defaultMembers
	fsync    bool   // members wait for the disk
	auth     bool   // members ask for users
	etcd     string // the program of the members; "": the etcd of package etcdtest
	foreign  target // on which it runs instead, if that has endpoints
	out      string // where records are kept
	summary  string // the file of the summary
	note     string
	progress io.Writer
}

// defaultMembers is how many members a cluster has.
const defaultMembers = 3

// roundsOfACluster bounds what a judgment has to read of a cluster's Raft log.
const roundsOfACluster = 10

// A campaign is a number of rounds on one cluster after the other.
type campaign struct {
	options
	begin   time.Time
	summary *summary
}

// run makes a campaign, and returns its summary also if it could not go on.
func run(ctx context.Context, o options) (*summary, error) {
	c := &campaign{options: o, begin: time.Now(), summary: newSummary(o)}
	var err error
	for err == nil && c.goesOn(ctx) {
		err = c.onOneCluster(ctx)
	}
	if why := c.summary.provesLittle(); why != "" && ctx.Err() == nil {
		err = errors.Join(err, errors.New(why))
	}
	return c.summary, errors.Join(err, c.save())
}

// goesOn reports whether another round begins.
func (c *campaign) goesOn(ctx context.Context) bool {
	n := c.summary.Rounds
	return ctx.Err() == nil && (n == 0 || time.Since(c.begin) < c.duration) && (c.rounds == 0 || n < c.rounds)
}

// onOneCluster makes rounds on a new cluster, or on the user's.
func (c *campaign) onOneCluster(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "campaign-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	on, links := c.foreign, make([]*etcdtest.Link, c.workers)
	if len(on.endpoints) > 0 {
		err = on.claim(ctx)
	} else if on.Cluster, err = etcdtest.NewCluster(cmp.Or(c.members, defaultMembers), etcdtest.Options{
		Processes: true, Program: c.etcd, DefaultTicks: true, Dir: dir, Fsync: c.fsync,
	}); err == nil {
		defer func() { err = errors.Join(err, on.Close()) }()
		if c.auth {
			if err := askForUsers(ctx, on); err != nil {
				return err
			}
			on.user = operator
		}
		for i := range links {
			if links[i], err = on.NewLink(); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, links[i].Close()) }()
		}
	}
	if err != nil {
		return err
	}
	history, err := watchHistory(ctx, on)
	if err != nil {
		return err
	}
	defer history.close()
	if c.summary.Etcd, err = version(ctx, on); err != nil {
		return err
	}
	for n := 0; n < roundsOfACluster && c.goesOn(ctx); n++ {
		f := newRound(on, history, dir, links, c.summary.Rounds, c.options)
		began := time.Now()
		rec, err := f.run(ctx)
		if rec != nil {
			c.summary.add(f, rec, time.Since(began))
			if len(rec.violations)+len(rec.ofMachine) > 0 {
				err = errors.Join(err, c.keep(f, rec))
			}
		}
		c.tell(rec)
		if err := errors.Join(err, c.save()); err != nil {
			return fmt.Errorf("round %d: %w", f.number, err)
		}
	}
	return nil
}

// version returns that of a cluster.
func version(ctx context.Context, on target) (string, error) {
	cli, err := on.NewClient()
	if err != nil {
		return "", err
	}
	defer cli.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	status, err := cli.Status(ctx, cli.Endpoints()[0])
	if err != nil {
		return "", err
	}
	return status.Version, nil
}

// tell prints a line about the latest round, and all of them.
func (c *campaign) tell(rec *recorded) {
	s, of := c.summary, 0
	if rec != nil {
		of = len(rec.Record.Holds)
	}
	fmt.Fprintf(c.progress, "%s round %d: %d acquisitions; in all %.2f h, %d acquisitions, %d losses, %d faults, "+
		"%d violations\n", time.Now().Format(time.TimeOnly), s.Rounds-1, of, s.Hours, s.Acquisitions, s.losses(),
		s.faults(), len(s.Violations))
}
