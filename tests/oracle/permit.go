package oracle

import (
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// FirstLimit is the limit that the first program of a semaphore names.
const FirstLimit = 2

// isPermit reports whether an entry is of a semaphore.
func isPermit(key string) bool { return strings.HasPrefix(key, Keys+"sem/") }

// LimitKey returns the key of the limit of a semaphore.
func LimitKey(name string) string { return Keys + "sem/" + name + "/@limit" }

// LimitIn returns the limit that the value of that key is.
func LimitIn(kv *mvccpb.KeyValue) int { return numberBefore(string(kv.Value), " ") }

func numberBefore(text, separator string) int {
	number, _, _ := strings.Cut(text, separator)
	n, err := strconv.Atoi(number)
	if err != nil {
		panic(err)
	}
	return n
}

// weight returns the weight that the key of a permit's entry names.
func (e *entry) weight() int { return numberBefore(e.key[strings.LastIndexByte(e.key, '/')+1:], "-") }

// limitChanges returns the changes of the limit of a semaphore, whose entries are in a queue.
func (h *history) limitChanges(queue string) []*Change {
	return h.keys[LimitKey(strings.TrimSuffix(strings.TrimPrefix(queue, Keys+"sem/"), "/@/"))]
}

// limit returns the limit of a semaphore at a revision.
func (h *history) limit(queue string, at int64) int {
	limit := FirstLimit
	for _, c := range h.limitChanges(queue) {
		if c.Revision <= at {
			limit = LimitIn(c.Kv)
		}
	}
	return limit
}

// fits reports whether the weights of all entries ahead and its own fitted into the limit at a revision.
func (h *history) fits(own *entry, at int64) bool {
	return h.weightAhead(own, at)+own.weight() <= h.limit(own.Prefix, at)
}

func (h *history) weightAhead(own *entry, at int64) (sum int) {
	for _, e := range h.queues[own.Prefix] {
		if e.put.Revision < own.put.Revision && e.stood(at) {
			sum += e.weight()
		}
	}
	return sum
}

// checkAdmission checks that a permit fitted in when it was granted: when its turn was marked, or else, without a wait,
// when its entry was put.
func (j *judge) checkAdmission(h *Hold) {
	own := h.entries[0]
	from, to := h.rev, h.AcquiredAt // if the reply to the put was lost, the limit was read later
	if own.mark != nil {
		from, to = own.mark.Revision, own.mark.Revision
		j.verdict.count(Waited)
	}
	for at := from; at <= to; at++ {
		if j.fits(own, at) {
			return
		}
	}
	j.fail("%s: granted between revisions %d and %d with %d ahead, limit %d", h.Who, from, to, j.weightAhead(own, to),
		j.limit(own.Prefix, to))
}

// checkTogether checks that when a permit began to be held, it, those held beside it, and those whose holders did not
// know yet that their entry was gone, did not exceed the highest limit that there had been.
func (j *judge) checkTogether(h *Hold) {
	if h.First == 0 {
		return
	}
	own, at := h.entries[0], h.First
	most := FirstLimit
	for _, c := range j.limitChanges(own.Prefix) {
		if c.After <= at {
			most = max(most, LimitIn(c.Kv))
		}
	}
	sum, with := own.weight(), ""
	for _, other := range j.holds {
		e := other.entries[0]
		if other == h || e.Prefix != own.Prefix || other.First == 0 || other.First > at || other.Last < at {
			continue
		}
		if e.gone != nil && e.gone.Before <= at {
			if why := j.excused(other, h); why != "" {
				j.verdict.count("permits beside one that was gone, as documented: " + why)
				continue
			}
		}
		sum += e.weight()
		with += " " + other.Who
	}
	if sum > most {
		j.fail("%s: %d are held together with%s, and the limit was never above %d", h.Who, sum, with, most)
	}
}
