//go:build linux

package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// save writes the summary, if it has a file.
func (c *campaign) save() error { return c.summary.write(c.options.summary) }

// keep keeps the record of a round that broke a promise: what is needed to judge it again, its timeline as text and as
// a page, and the logs of the processes.
func (c *campaign) keep(f *round, rec *recorded) error {
	rec.Etcd = c.summary.Etcd
	name := strings.ReplaceAll(fmt.Sprintf("seed%d-round%d-etcd%s", rec.Seed, rec.Round, rec.Etcd), "/", "-")
	dir := filepath.Join(c.out, name)
	c.summary.Kept = append(c.summary.Kept, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	err := errors.Join(
		rec.store(filepath.Join(dir, recordFile)),
		os.WriteFile(filepath.Join(dir, "timeline.txt"), []byte(rec.text()), 0o600),
		os.WriteFile(filepath.Join(dir, "timeline.html"), []byte(rec.page()), 0o600),
		os.CopyFS(filepath.Join(dir, "logs"), os.DirFS(f.logs)),
		keepLogs(f.dir, dir),
	)
	if info, failed := os.Stat(filepath.Join(dir, recordFile)); failed == nil && info.Size() > mostKept {
		err = errors.Join(err, fmt.Errorf("the record of round %d has %d bytes, and docs/evidence takes %d: use a shorter "+
			"-round", rec.Round, info.Size(), mostKept))
	}
	fmt.Fprintf(c.progress, "seed %d, round %d:\n", rec.Seed, rec.Round)
	for _, v := range rec.violations {
		fmt.Fprintf(c.progress, "  a promise was broken: %s\n", v)
	}
	for _, v := range rec.ofMachine {
		fmt.Fprintf(c.progress, "  of the machine: %s\n", v)
	}
	fmt.Fprintf(c.progress, "  kept in %s; judge it again by\n  go run ./tests/campaign -judge %s\n", dir,
		filepath.Join(dir, recordFile))
	return err
}

// keepLogs copies the logs of the members: those of older releases write one.
func keepLogs(from, to string) error {
	logs, err := filepath.Glob(filepath.Join(from, "*.log"))
	for _, log := range logs {
		text, failed := os.ReadFile(log)
		if failed == nil {
			failed = os.WriteFile(filepath.Join(to, filepath.Base(log)), text, 0o600)
		}
		err = errors.Join(err, failed)
	}
	return err
}

const (
	recordFile = "record.json.gz"

	// mostKept is how large the record of a round may be, and roundsDir where those are that docs/evidence has.
	mostKept  = 2 << 20
	roundsDir = "rounds"
)

// store writes the record to a file.
func (rec *recorded) store(file string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, _ := gzip.NewWriterLevel(f, gzip.BestCompression) // the level is one that it knows
	return errors.Join(json.NewEncoder(z).Encode(rec), z.Close())
}

// load reads a record that store has written.
func load(file string) (*recorded, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	rec := new(recorded)
	if err := json.NewDecoder(z).Decode(rec); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return rec, nil
}
