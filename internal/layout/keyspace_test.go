package layout

import (
	"fmt"
	"strings"
	"testing"
)

func TestWeightIsReadFromTheKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int{
		"3-5eed-A": 3, "1-5eed-A": 1, "0-5eed-A": 0, "-1-5eed-A": 0, "x-5eed-A": 0, "": 0, "7": 7,
		fmt.Sprintf("%d-5eed-A", MaxPermits): MaxPermits, fmt.Sprintf("%d-5eed-A", MaxPermits+1): 0,
	} {
		if got := WeightOf("holdfast/sem/x/@/" + key); got != want {
			t.Errorf("the weight of %q is %d, want %d", key, got, want)
		}
	}
}

func TestKeysAreTakenApartAsTheyAreMade(t *testing.T) {
	t.Parallel()
	const lease = 0x5eed
	named, foreign, sem := Named("ns", "lock", "a/b"), At("ns", "election", "ns/lock/x"), Named("ns", "semaphore", "s")
	for _, c := range []struct {
		q      Keyspace
		key    string
		prefix string
		reader bool
		weight int
	}{
		{named, named.Entries + NewID(lease), "ns/lock/a/b/@/5eed-", false, 0},
		{named, named.ReaderKey(NewID(lease)), "ns/lock/a/b/@/!s5eed-", true, 0},
		{sem, sem.PermitKey(7, NewID(lease)), "ns/sem/s/@/7-5eed-", false, 7},
		{foreign, foreign.Entries + NewID(lease), "ns/lock/x/5eed-", false, 0},
	} {
		id, ours := LeaseOf(c.key)
		if !strings.HasPrefix(c.key, c.prefix) || !ours || id != lease || IsReader(c.key) != c.reader ||
			WeightOf(c.key) != c.weight {
			t.Errorf("%s: of %x, %v; reader %v, weight %d", c.key, id, ours, IsReader(c.key), WeightOf(c.key))
		}
		if q, below := Of("ns", c.key); below == c.q.Foreign || below && q != c.q {
			t.Errorf("%s: of %+v, %v", c.key, q, below)
		}
	}
	for _, key := range []string{
		"ns/epoch", "ns/session/5eed", "ns/lock/a", "other/lock/a/@/x", "ns/x/a/@/x", "ns/lock/a/@run",
		"ns/lock/a/@b/@/x", "ns/lock/a/@turn/x",
	} {
		if q, below := Of("ns", key); below {
			t.Errorf("%s: of %+v", key, q)
		}
	}
	if named.RunKey() != "ns/lock/a/b/@run" || sem.LimitKey() != "ns/sem/s/@limit" {
		t.Errorf("%s, %s", named.RunKey(), sem.LimitKey())
	}
}

func TestLeaseOfAnEntryIsReadFromItsKey(t *testing.T) {
	t.Parallel()
	const nonce = "-AAAAAAAAAAAAAAAA"
	for part, want := range map[string]int64{
		"5eed" + nonce: 0x5eed, "!s5eed" + nonce: 0x5eed, "3-5eed" + nonce: 0x5eed, "1024-5eed" + nonce: 0x5eed,
		"0-5eed" + nonce: 0, "1025-5eed" + nonce: 0, "x-5eed" + nonce: 0, // no weight
		"5eed": 0, "5eed-AAAA": 0, "no-number" + nonce: 0, "xyz" + nonce: 0,
		"ffffffffffffffff" + nonce: 0, // more than a lease ID can be
	} {
		id, ours := LeaseOf("x/@/" + part)
		if ours != (want != 0) || ours && int64(id) != want {
			t.Errorf("%s: %x, %v; want %x", part, int64(id), ours, want)
		}
	}
}

func TestKeysOfSessions(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		SessionKeys("ns"):        "ns/session/",
		SessionKey("ns", 0x5eed): "ns/session/5eed",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
