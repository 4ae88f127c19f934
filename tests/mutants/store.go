//go:build linux

package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// stored names the file with what the tests of b have shown. The next run uses it if neither they nor the instrumented
// copies have changed.
func (r *runner) stored(b *binary) (string, error) {
	program, err := os.ReadFile(b.path)
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256(append(r.sources, program...))
	return filepath.Join(r.dir, fmt.Sprintf("%s-%x.json", path.Base(b.pkg), hash[:8])), nil
}

func readJSON(name string, v any) bool {
	text, err := os.ReadFile(name)
	return err == nil && json.Unmarshal(text, v) == nil
}

func writeJSON(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}

// record is a file with a verdict on each line.
type record struct {
	f *os.File // nil if verdicts are not kept
}

// openRecord also returns what the file says of each mutant.
func openRecord(name string) (*record, map[string]verdict, error) {
	known := make(map[string]verdict)
	if name == "" {
		return &record{}, known, nil
	}
	old, err := os.Open(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if err == nil {
		defer old.Close()
		lines := bufio.NewScanner(old)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var v verdict
			if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", name, err)
			}
			known[v.Key] = v
		}
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return &record{f}, known, err
}

func (r *record) add(v verdict) error {
	if r.f == nil {
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = r.f.Write(append(text, '\n'))
	return err
}
