package oracle

import (
	"slices"
	"strings"
)

const dataKeys = "data/"

// DataKey returns a key that the holders in a queue write, by fenced writes. Each writes its owner.
func DataKey(queue string) string { return dataKeys + strings.TrimPrefix(queue, Keys) }

// checkWrites checks that each write of a holder was made while it held by etcd's record.
func (j *judge) checkWrites() {
	for _, c := range j.changes {
		if !strings.HasPrefix(string(c.Kv.Key), dataKeys) || c.Deleted {
			continue
		}
		j.verdict.count("fenced writes")
		who := string(c.Kv.Value)
		if !slices.ContainsFunc(j.holds, func(h *Hold) bool {
			if h.Who != who {
				return false
			}
			missing, ahead := j.standing(h, c.Revision)
			return missing == nil && ahead == nil
		}) {
			j.fail("%s wrote at revision %d, at which it did not hold", who, c.Revision)
		}
	}
}
