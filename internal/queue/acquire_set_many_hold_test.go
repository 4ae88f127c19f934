package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/internal/hold"
	"github.com/holdfast-go/holdfast/internal/queue"
	"github.com/holdfast-go/holdfast/internal/testkit/holdtest"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
)

var noRequest hold.Request

// many is a set of that many locks.
func many(p *holdtest.Process, n int) (s queue.Set) {
	for i := range n {
		s = append(s, p.Queue(fmt.Sprintf("n%02d", i)))
	}
	return s
}

// sizes of sets: the largest has as many comparisons in a Txn as etcd takes.
var sizes = []int{12, queue.MaxSet}

func TestLargeSetIsLockedAndTried(t *testing.T) {
	for _, n := range sizes {
		for name, acquire := range map[string]acquirer{"Lock": holdtest.AcquireSet, "TryLock": holdtest.TryAcquireSet} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p := holdtest.Start(t, srv)
					p.Plan(nil)
					holds, err := acquire(kit.Within(t, time.Minute), many(p, n), noRequest)
					if err != nil {
						t.Fatal(err)
					}
					if sent := p.Counts(); sent["enqueue"] != 1 || sent["read"] > 1 || len(kit.AllStanding(srv)) != n {
						t.Errorf("%d entries stand; sent %v", len(kit.AllStanding(srv)), sent)
					}
					holdtest.MustRelease(t, holds[0])
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

// Whichever of the names is taken: who tries is refused, and who waits holds when it is free.
func TestLargeSetOfWhichOneNameIsTaken(t *testing.T) {
	for _, n := range sizes {
		for _, taken := range []int{0, n / 2, n - 1} {
			t.Run(fmt.Sprint(taken, " of ", n), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					p, other := holdtest.Start(t, srv), holdtest.Start(t, srv)
					name := fmt.Sprintf("n%02d", taken)
					h := holdtest.MustAcquire(t, other.Queue(name))
					_, err := holdtest.TryAcquireSet(kit.Within(t, time.Minute), many(p, n), noRequest)
					if place, err := queue.Without(err); !errors.Is(err, queue.ErrOccupied) || place.Name != name {
						t.Errorf("TryAcquire: %+v, %v", place, err)
					}
					done := acquireSetLater(kit.Within(t, time.Minute), many(p, n))
					kit.Queued(t, srv, kit.Entries(name), 2)
					holdtest.MustRelease(t, h)
					released := time.Now()
					holds := grantedSet(t, srv, done)
					if took := time.Since(released); took > kit.Prompt {
						t.Errorf("held after %v", took)
					}
					holdtest.MustRelease(t, holds[0])
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

// A Try asks first and puts afterwards. A name that is taken in between refuses the whole set.
func TestLargeSetThatIsOvertakenIsRefused(t *testing.T) {
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				p := holdtest.Start(t, srv)
				p.PlanOne("enqueue", etcdfake.Fate{Request: 100 * kit.OneWay})
				done := make(chan error, 1)
				go func() { // received below
					_, err := holdtest.TryAcquireSet(kit.Within(t, time.Minute), many(p, n), noRequest)
					done <- err
				}()
				time.Sleep(50 * kit.OneWay)
				other := kit.Join(t, srv, kit.Entries(fmt.Sprintf("n%02d", n-1)))
				if err := <-done; !errors.Is(err, queue.ErrOccupied) {
					t.Errorf("TryAcquire: %v", err)
				}
				other.Release()
				kit.NothingStands(t, srv)
			})
		})
	}
}

// A copy of the put arrives late: while the set holds, after an administrator has deleted one of its entries, alone or
// with its claim, and when the set has been released.
func TestLateCopyOfThePutOfALargeSetLeavesNothing(t *testing.T) {
	for _, n := range sizes {
		for name, deletes := range map[string]func(entry string) []string{
			"nothing is deleted":         func(string) []string { return nil },
			"an entry is deleted":        func(entry string) []string { return []string{entry} },
			"an entry and its claim are": func(entry string) []string { return []string{entry, kit.ClaimOf(entry)} },
		} {
			for when, released := range map[string]bool{"held": false, "released": true} {
				t.Run(fmt.Sprint(n, ", ", name, ", ", when), func(t *testing.T) {
					etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
						p := holdtest.Start(t, srv)
						const late = 3 * time.Second
						p.PlanOne("enqueue", etcdfake.Fate{Request: late})
						began := time.Now()
						holds := holdtest.MustAcquireSet(t, many(p, n), noRequest)
						time.Sleep(time.Until(began.Add(late - 10*kit.OneWay)))
						for _, key := range deletes(holds[n-1].Key()) {
							srv.Delete(key)
						}
						if released {
							_ = holds[0].Release(kit.Within(t, time.Minute))
						}
						time.Sleep(time.Until(began.Add(late + kit.OneWay)))
						if !released {
							_ = holds[0].Release(kit.Within(t, time.Minute))
						}
						time.Sleep(time.Minute)
						kit.NothingStands(t, srv)
					})
				})
			}
		}
	}
}

// One delay for all. A look reads several queues, and a request deletes the claims of several.
func TestLargeSetBehindASetThatIsGoneDelaysOnce(t *testing.T) {
	for _, n := range sizes {
		for name, waits := range map[string]bool{"a newcomer": false, "a waiter": true} {
			t.Run(fmt.Sprint(n, ", ", name), func(t *testing.T) {
				etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
					a, b := holdtest.Start(t, srv), holdtest.Start(t, srv)
					former := holdtest.MustAcquireSet(t, many(a, n), noRequest)
					end := func() {
						a.Stop()
						time.AfterFunc(kit.TTL-time.Second, a.Resume)
						srv.Revoke(former[0].Lease())
					}
					done := make(chan []*hold.Hold, 1)
					call := func() { done <- holdtest.MustAcquireSet(t, many(b, n), noRequest) } // received below
					if waits {
						go call()
						kit.Queued(t, srv, "holdfast/lock/n00/@/", 2)
						time.Sleep(time.Second)
					} else {
						end()
					}
					b.Plan(nil)
					began := time.Now()
					if waits {
						end()
					} else {
						go call()
					}
					holds := <-done
					took, sent := time.Since(began), b.Counts()

					// Of each queue: the nearest entry, the claims, what one of them says, and a session key.
					looks := ceil(n, (queue.MaxOps-n)/4)
					trips := 1
					if waits {
						trips += looks // each but the first waits for its watch
					}
					looks += ceil(n, (queue.MaxOps-n)/2) // at the end of the delay nothing is left to be read of a claim
					clears := ceil(n, queue.MaxOps-n)
					if sent["read"] != looks || sent["clear"] != clears {
						t.Errorf("sent %v, want %d looks and %d clears", sent, looks, clears)
					}
					trips += looks + clears
					if most := time.Duration(trips) * 2 * kit.OneWay; took < kit.LockDelay || took > kit.LockDelay+most {
						t.Errorf("held after %v, want %v and %v", took, kit.LockDelay, most)
					}
					holdtest.MustRelease(t, holds[0])
					time.Sleep(kit.TTL)
					kit.NothingStands(t, srv)
				})
			})
		}
	}
}

func ceil(n, by int) int { return (n + by - 1) / by }
