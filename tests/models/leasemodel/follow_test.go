package leasemodel

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/lease"
	client "github.com/holdfast-go/holdfast/session"
)

// What a session says, in seconds since the Grant was sent. The lease has a TTL of 6 s and is trusted for 4 s, so it is
// suspended after 2 s.

func second(t float64) time.Duration { return time.Hour + time.Duration(t*float64(time.Second)) }

func granted(until float64) Said {
	return Said{Step: lease.Step{Action: lease.Granted, At: second(0), Sent: second(0), Until: second(until),
		TTL: 6 * time.Second, Margin: 2 * time.Second}}
}

// begins is a lease that its session keeps from a time on.
func begins(at float64) []Said { return []Said{granted(4), says(lease.Begins, at)} }

func says(a lease.Action, at float64) Said {
	return Said{Step: lease.Step{Action: a, At: second(at), Sent: second(at)}}
}

func answered(a lease.Action, at, sent float64, term uint64) Said {
	return Said{Step: lease.Step{Action: a, At: second(at), Sent: second(sent), Term: term}}
}

func confirmed(at, until float64) Said {
	return Said{Step: lease.Step{Action: lease.Confirmed, At: second(at), Until: second(until)}}
}

func loses(at float64, cause holdfast.Cause) Said {
	return Said{Step: lease.Step{Action: lease.Loses, At: second(at), Cause: cause}}
}

func late(s Said) Said {
	s.Late = true
	return s
}

// replies are both replies to a renewal and to its proof.
func replies(at, sent float64, acked uint64, read float64, proved uint64) []Said {
	return []Said{answered(lease.Acknowledged, at, sent, acked), answered(lease.Proved, at, read, proved)}
}

// Each case is what a right session says, and another one that wrong code could say.
func TestForgedStepsOfSessionsAreRefused(t *testing.T) {
	const renews, reads, acknowledged, proved = lease.Renews, lease.Reads, lease.Acknowledged, lease.Proved
	sends := append(begins(0), says(renews, 1), says(reads, 1.25))
	for rule, r := range map[string]struct{ before, right, wrong []Said }{
		"a lease is trusted for its TTL less the margin": {
			nil, []Said{granted(4)}, []Said{granted(5.5)},
		},
		"a renewal counts from the earlier of the two sends": {
			slices.Concat(sends, replies(1.5, 1, 7, 1.25, 7)),
			[]Said{confirmed(1.5, 5)}, []Said{confirmed(1.5, 5.25)},
		},
		"a renewal counts from the earlier of the two sends, also if that is the proof's": {
			[]Said{granted(4), says(reads, 1), says(renews, 1.25), answered(proved, 1.5, 1, 7),
				answered(acknowledged, 1.5, 1.25, 7)},
			[]Said{confirmed(1.5, 5)}, []Said{confirmed(1.5, 5.25)},
		},
		"a renewal counts from its send, not from its reply": {
			sends,
			append(replies(1.5, 1, 7, 1.25, 7), confirmed(1.5, 5)),
			append(replies(1.5, 1.5, 7, 1.5, 7), confirmed(1.5, 5.5)),
		},
		"the copy that is answered decides": {
			slices.Concat(sends, []Said{says(renews, 1.5)}),
			append(replies(1.75, 1, 7, 1.25, 7), confirmed(1.75, 5)),
			append(replies(1.75, 1, 7, 1.25, 7), confirmed(1.75, 5.25)),
		},
		"many copies of one moment are one": {
			append(begins(0), slices.Repeat([]Said{says(renews, 1), says(reads, 1)}, 5)...),
			append(replies(1.75, 1, 7, 1, 7), confirmed(1.75, 5)),
			append(replies(1.75, 1, 7, 1, 7), confirmed(1.75, 5.75)),
		},
		"a read is no renewal": {
			append(begins(0), says(reads, 1), says(renews, 1.25)),
			append(replies(1.75, 1.25, 7, 1, 7), confirmed(1.75, 5)),
			append(replies(1.75, 1, 7, 1, 7), confirmed(1.75, 5)),
		},
		"a renewal does not count without a proof": {
			append(sends, answered(acknowledged, 1.5, 1, 7)),
			[]Said{answered(proved, 1.5, 1.25, 7), confirmed(1.5, 5)},
			[]Said{confirmed(1.5, 5)},
		},
		"a proof does not count twice": {
			slices.Concat(sends, replies(1.5, 1, 7, 1.25, 7), []Said{confirmed(1.5, 5), says(renews, 2),
				says(reads, 2), answered(acknowledged, 2.5, 2, 7)}),
			[]Said{answered(proved, 2.5, 2, 7), confirmed(2.5, 6)},
			[]Said{answered(proved, 2.5, 1.25, 7), confirmed(2.5, 6)},
		},
		"an acknowledgement of an earlier term than the proof is dropped": {
			slices.Concat(sends, replies(1.5, 1, 7, 1.25, 9), []Said{says(renews, 1.75)}),
			[]Said{answered(acknowledged, 1.8, 1.75, 9), confirmed(1.8, 5.25)},
			[]Said{confirmed(1.8, 5)},
		},
		"a proof of an earlier term than the acknowledgement is dropped": {
			slices.Concat(sends, replies(1.5, 1, 9, 1.25, 7), []Said{says(reads, 1.75)}),
			[]Said{answered(proved, 1.8, 1.75, 9), confirmed(1.8, 5)},
			[]Said{confirmed(1.8, 5)},
		},
		"a reply that is kept is replaced by that to a later request, and by no earlier one": {
			slices.Concat(sends, []Said{says(reads, 1.6), answered(proved, 1.7, 1.6, 7), answered(proved, 1.7, 1.25, 7),
				says(renews, 1.75)}),
			[]Said{answered(acknowledged, 1.8, 1.75, 7), confirmed(1.8, 5.6)},
			[]Said{answered(acknowledged, 1.8, 1.75, 7), confirmed(1.8, 5.25)},
		},
		"a renewal that is confirmed after trusted-until does not count": {
			slices.Concat(sends, replies(1.5, 1, 7, 1.25, 7), []Said{says(lease.Suspends, 2)}),
			[]Said{late(confirmed(3.9, 5))}, []Said{late(confirmed(4.1, 5))},
		},
		"a loss is final": {
			slices.Concat(sends, replies(1.5, 1, 7, 1.25, 7)),
			[]Said{loses(1.5, holdfast.CauseRevoked)},
			[]Said{loses(1.5, holdfast.CauseRevoked), confirmed(1.5, 5)},
		},
		"replies to which nothing comes do not count": {
			slices.Concat(sends, replies(1.5, 1, 7, 1.25, 7), []Said{says(lease.Suspends, 2)}),
			[]Said{loses(4, holdfast.CauseExpired)}, []Said{loses(3.9, holdfast.CauseExpired)},
		},
		"a suspension is not told before half of the time is over": {
			begins(0), []Said{says(lease.Suspends, 2)}, []Said{says(lease.Suspends, 1.9)},
		},
		"a lease that stays suspended after a renewal is not told so again": {
			[]Said{granted(4), says(renews, 1), says(lease.Suspends, 2), says(reads, 3),
				answered(acknowledged, 3.5, 1, 7), answered(proved, 3.5, 3, 7), confirmed(3.5, 5)},
			[]Said{loses(5.5, holdfast.CauseExpired)}, []Said{loses(4.5, holdfast.CauseExpired)},
		},
		"a suspension that a renewal has overtaken is told": {
			slices.Concat(sends, replies(1.5, 1, 7, 1.25, 7)),
			[]Said{confirmed(2.1, 5), says(lease.Suspends, 2.1)},
			[]Said{confirmed(1.9, 5), says(lease.Suspends, 2.1)},
		},
		"a suspension is told within the margin": {
			begins(0), []Said{says(lease.Suspends, 3.9)}, []Said{says(lease.Suspends, 4.1)},
		},
		"a suspension is told within the margin after the session began to keep the lease": {
			begins(3), []Said{says(lease.Suspends, 4.9)}, []Said{loses(5.1, holdfast.CauseClosed)},
		},
		"a suspension is told so also if a renewal counts before the session begins": {
			slices.Concat([]Said{{Step: lease.Step{Action: lease.Granted, At: second(0), Sent: second(0), Until: second(5.5),
				TTL: 6 * time.Second, Margin: time.Second / 2}}, says(renews, 0.5), says(reads, 4.5)},
				replies(5, 0.5, 7, 4.5, 7), []Said{confirmed(5, 6), says(lease.Begins, 5.1)}),
			[]Said{says(lease.Suspends, 5.5)}, []Said{loses(5.7, holdfast.CauseClosed)},
		},
		"a suspension is told again after a renewal": {
			slices.Concat(sends, replies(1.5, 1, 7, 1.25, 7), []Said{says(lease.Suspends, 2), confirmed(2.5, 5)}),
			[]Said{says(lease.Suspends, 3), loses(5.5, holdfast.CauseExpired)},
			[]Said{loses(5.5, holdfast.CauseExpired)},
		},
		"a loss is told within the margin": {
			append(begins(0), says(lease.Suspends, 2)),
			[]Said{loses(5.9, holdfast.CauseExpired)}, []Said{loses(6.1, holdfast.CauseExpired)},
		},
		"a process that was stopped is told late": {
			begins(0),
			[]Said{late(loses(60, holdfast.CauseExpired))}, []Said{loses(60, holdfast.CauseExpired)},
		},
		"a lease begins with its Grant": {
			nil, sends, sends[1:],
		},
	} {
		t.Run(rule, func(t *testing.T) {
			if refused := Follow(slices.Concat(r.before, r.right)).Refused; len(refused) > 0 {
				t.Errorf("what a right session says: %s", refused[0])
			}
			switch refused := Follow(slices.Concat(r.before, r.wrong)).Refused; {
			case len(refused) != 1:
				t.Error("the model accepts what is forged")
			case !strings.Contains(refused[0], "is not a step of the model") && len(r.before) > 0:
				t.Errorf("refused by another reason: %s", refused[0])
			}
		})
	}
}

func TestFollowCounts(t *testing.T) {
	other := func(s Said) Said {
		s.Lease = 2
		return s
	}
	said := slices.Concat([]Said{granted(4), says(lease.Renews, 1), other(granted(4)), says(lease.Reads, 1.25)},
		replies(1.5, 1, 7, 1.25, 9), []Said{says(lease.Renews, 1.75), answered(lease.Acknowledged, 1.8, 1.75, 9),
			confirmed(1.8, 5.25), other(says(lease.Suspends, 2)),
			late(other(loses(4, holdfast.CauseExpired)))})
	want := map[string]int{Followed: 2, Renewed: 1, Dropped: 1, Suspended: 1, Expired: 1, Timely: 1}
	got := Follow(said)
	if len(got.Refused) > 0 {
		t.Fatal(got.Refused[0])
	}
	for what, n := range want {
		if got.Counts[what] != n {
			t.Errorf("%s: %d, want %d", what, got.Counts[what], n)
		}
	}
}

// The reply to the put of the session key comes after the suspension, and the renewal beside the put hangs for longer
// than the margin. No holder has the lease meanwhile, so it is soon enough to tell the suspension as the session
// begins.
func TestSessionThatBeginsSuspendedIsARunOfTheModel(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		link := srv.Link()
		link.Plan(func(call etcdfake.Call) etcdfake.Fate {
			switch call.Method {
			case "LeaseGrant", "Put":
				return etcdfake.Fate{Request: 385 * time.Millisecond, Reply: 385 * time.Millisecond}
			case "LeaseKeepAlive":
				return etcdfake.Fate{LoseRequest: true, Silent: true}
			}
			return etcdfake.Fate{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var mu sync.Mutex // protects said
		var said []Said
		observed := lease.Observe(ctx, func(s lease.Step) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, Said{Step: s})
		})
		sess, err := client.New(observed, link.Client(), client.Options{TTL: 3 * time.Second,
			Clock: client.MonotonicClock(), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		link.Heal()
		time.Sleep(10 * time.Second)
		if err := sess.Close(t.Context()); err != nil {
			t.Error(err)
		}
		r := Follow(said)
		if len(r.Refused) > 0 {
			t.Error(r.Refused[0])
		}
		if r.Counts[Suspended] != 1 || r.Counts[Renewed] == 0 {
			t.Errorf("%v, want a suspension, and renewals after it", r.Counts)
		}
	})
}
