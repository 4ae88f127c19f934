package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/tests/internal/register"
)

const writers = 16

// contest has writers with present and stale tokens write to a few resources at once,
// and then reads the table's history.
type contest struct {
	d         *database
	resources []string
	tokens    []atomic.Int64 // the newest of each resource
	expire    bool           // marks do, so that a token of another resource may have one refused

	mu      sync.Mutex               // protects landed, stale and history
	landed  map[string]bool          // works reported as committed
	stale   int                      // refused writes
	history map[string][]register.Op // writes and reads, by resource
}

func newContest(d *database, resources ...string) *contest {
	return &contest{
		d: d, resources: resources, tokens: make([]atomic.Int64, len(resources)), landed: make(map[string]bool),
		history: make(map[string][]register.Op),
	}
}

// write is a guarded write. It returns nil or fencing.ErrStale.
type write func(ctx context.Context, resource string, token holdfast.Token, work string) error

func (c *contest) run(t *testing.T, rounds int, write write) {
	t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			held := make([]holdfast.Token, len(c.resources))
			for i := range rounds {
				r := rand.IntN(len(c.resources))
				// In a third of the rounds this writer acquires the lock. Otherwise it
				// writes with its last token, which may be stale.
				if held[r] == 0 || rand.IntN(3) == 0 {
					held[r] = holdfast.Token(c.tokens[r].Add(1))
				}
				work := fmt.Sprintf("%s %d/%d", c.resources[r], w, i)
				op := register.Op{Token: held[r], Value: work, Mark: !c.expire, Call: time.Since(began)}
				err := write(t.Context(), c.resources[r], held[r], work)
				op.Return, op.Refused = time.Since(began), errors.Is(err, fencing.ErrStale)
				c.record(t, c.resources[r], op, err)
				if i%2 == 0 {
					op = register.Op{Read: true, Call: time.Since(began)}
					op.Value, err = c.d.lastWork(t.Context(), c.resources[r])
					op.Return = time.Since(began)
					c.record(t, c.resources[r], op, err)
				}
			}
		})
	}
	all.Wait()
	c.judge(t)
}

func (c *contest) record(t *testing.T, resource string, op register.Op, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history[resource] = append(c.history[resource], op)
	switch {
	case op.Refused:
		c.stale++
	case err != nil:
		t.Errorf("%s: %+v: %v", resource, op, err)
	case !op.Read:
		c.landed[op.Value] = true
	}
}

// judge checks that each resource's history is in the order of tokens, and has exactly
// the works that were reported as committed, and that what the writers saw is linearizable.
func (c *contest) judge(t *testing.T) {
	t.Helper()
	found := make(map[string]bool)
	for _, resource := range c.resources {
		works, tokens := c.d.works(t, resource)
		for i, work := range works {
			found[work] = true
			if i > 0 && tokens[i] < tokens[i-1] {
				t.Errorf("%s: token %v has written after %v", resource, tokens[i], tokens[i-1])
			}
		}
		if err := register.Check(c.history[resource], time.Minute); err != nil {
			t.Errorf("%s is not linearizable: %v", resource, err)
		}
	}
	if !maps.Equal(found, c.landed) {
		t.Errorf("history has %d works, %d were reported as committed", len(found), len(c.landed))
	}
	if c.stale == 0 || len(c.landed) == 0 {
		t.Errorf("%d refused, %d landed", c.stale, len(c.landed))
	}
	t.Logf("%d landed, %d refused", len(c.landed), c.stale)
}

func TestNoStaleWriteEverLands(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		levels := map[string]sql.IsolationLevel{"by default": sql.LevelDefault}
		if d.dialect != sqlfence.SQLite { // it has a single level
			levels = map[string]sql.IsolationLevel{
				"read committed":  sql.LevelReadCommitted,
				"repeatable read": sql.LevelRepeatableRead,
				"serializable":    sql.LevelSerializable,
			}
		}
		for name, level := range levels {
			t.Run(name, func(t *testing.T) {
				g := d.guard(t, &sqlfence.Options{Isolation: level, Retry: retry()})
				write := func(ctx context.Context, resource string, token holdfast.Token, work string) error {
					return g.Do(ctx, resource, token, d.write(resource, token, work))
				}
				resources := []string{name + " a", name + " b", name + " c"}
				newContest(d, resources...).run(t, 20, write)
				for _, resource := range resources {
					last := d.number(t, "SELECT MAX(token) FROM history WHERE resource = ?", resource)
					if mark := d.mark(t, resource); int64(mark) != last {
						t.Errorf("%s: mark %v, history ends with %v", resource, mark, last)
					}
				}
			})
		}
	})
}

// At the default level of each database, writers wait and need no retry.
func TestWritersOfOneResourceWaitForEachOther(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		for _, mark := range []string{"a first write", "a later one"} {
			var all sync.WaitGroup
			var within atomic.Int64
			for w := range writers {
				all.Go(func() {
					err := g.Do(t.Context(), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
						if n := within.Add(1); n != 1 {
							t.Errorf("%s: %d writers at once", mark, n)
						}
						defer within.Add(-1)
						return d.write("r", 5, fmt.Sprint(mark, w))(ctx, tx)
					})
					if err != nil {
						t.Errorf("%s: %v", mark, err)
					}
				})
			}
			all.Wait()
		}
		if works, _ := d.works(t, "r"); len(works) != 2*writers {
			t.Errorf("%d works", len(works))
		}
	})
}

// While a transaction of one resource is open, those of all others commit. If one had to
// wait for it, this would be a deadlock.
func TestWritersOfDifferentResourcesDoNotWait(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("a writer of another resource waits"))
		defer cancel()
		do := func(resource string, fn func(context.Context, *sql.Tx) error) {
			t.Helper()
			if err := g.Do(ctx, resource, holdfast.Token(5), fn); err != nil {
				t.Errorf("%s: %v", resource, err)
			}
		}
		do("m", d.write("m", 5, ""))
		do("n", d.write("n", 5, ""))
		for _, open := range []string{"m", "new"} { // has a row, has none yet
			do(open, func(context.Context, *sql.Tx) error {
				do("n", d.write("n", 5, ""))
				// New rows on both sides: a gap lock of InnoDB would block them.
				for _, other := range []string{"a", open[:1] + "!", open + "!", open + "!!", "z"} {
					do(open+other, d.write(other, 5, ""))
				}
				return nil
			})
		}
	})
}

func TestStaleWriterThatWaitedIsRefused(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		for i, what := range []string{"first", "later"} {
			older, newer := holdfast.Token(10*i+5), holdfast.Token(10*i+6)
			late := make(chan error, 1)
			err := g.Do(t.Context(), "r", newer, func(ctx context.Context, tx *sql.Tx) error {
				go func() { // joined by the receive
					late <- g.Do(t.Context(), "r", older, d.write("r", older, "never"))
				}()
				d.waitForWaiters(t, 1)
				return d.write("r", newer, what)(ctx, tx)
			})
			if err != nil {
				t.Error(err)
			}
			if err := <-late; !errors.Is(err, fencing.ErrStale) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// The next writer sees the commit of the previous one, although its own transaction began
// before that commit.
func TestWorkSeesWhatThePreviousWriterCommitted(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		g := d.guard(t, nil)
		d.exec(t, "INSERT INTO accounts (id, balance) VALUES (1, 10)")
		next := make(chan error, 1)
		var seen int64
		err := g.Do(t.Context(), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
			go func() { // joined by the receive
				next <- g.Do(t.Context(), "r", holdfast.Token(6), func(ctx context.Context, tx *sql.Tx) error {
					return tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = 1").Scan(&seen)
				})
			}()
			d.waitForWaiters(t, 1)
			_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = 11 WHERE id = 1")
			return err
		})
		if err := errors.Join(err, <-next); err != nil {
			t.Fatal(err)
		}
		if seen != 11 {
			t.Errorf("balance %d, want 11", seen)
		}
	})
}
