package oracle

import (
	"fmt"
	"slices"
	"strings"
)

const (
	dataKeys  = "data/"
	plainKeys = "plain/"
)

// DataKey returns a key that the holders in a queue write, by fenced writes. Each writes its owner, or
// what ValueOf makes of it.
func DataKey(queue string) string { return dataKeys + strings.TrimPrefix(queue, Keys) }

// ValueOf returns what a holder writes the nth time, if its writes must differ.
func ValueOf(who string, n int) string { return fmt.Sprint(who, "#", n) }

// WriterOf returns the holder that wrote a value.
func WriterOf(value string) string {
	who, _, _ := strings.Cut(value, "#")
	return who
}

// IsData reports whether a key is written by fenced writes.
func IsData(key string) bool { return strings.HasPrefix(key, dataKeys) }

// PlainKey returns a key that they write by ordinary puts, right after Check has returned nil.
func PlainKey(queue string) string { return plainKeys + strings.TrimPrefix(queue, Keys) }

// checkWrites checks that each fenced write of a holder was made while it held by etcd's record, and counts the others.
func (j *judge) checkWrites() {
	for _, c := range j.changes {
		key := string(c.Kv.Key)
		fenced := IsData(key)
		if c.Deleted || !fenced && !strings.HasPrefix(key, plainKeys) {
			continue
		}
		who := WriterOf(string(c.Kv.Value))
		held := slices.ContainsFunc(j.holds, func(h *Hold) bool {
			if h.Who != who {
				return false
			}
			missing, ahead := j.standing(h, c.Revision)
			return missing == nil && ahead == nil
		})
		switch {
		case !fenced:
			j.verdict.count(PlainWrites)
			if !held {
				j.verdict.count(LatePlainWrites)
			}
		default:
			j.verdict.count(FencedWrites)
			if !held {
				j.fail("%s wrote at revision %d, at which it did not hold", who, c.Revision)
			}
		}
	}
}
