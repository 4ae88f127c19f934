package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// galera is a cluster of two nodes, connected by the loopback address. Clients use their
// sockets.
var galera [2]*server

func init() { galera = [2]*server{galeraNode("first"), galeraNode("second")} }

const galeraProvider = "/usr/lib/galera/libgalera_smm.so"

var galeraPort int // of the first node

func galeraNode(name string) *server {
	return &server{
		name: "MariaDB Galera", packages: "mariadb-server galera-4 rsync", user: "mysql", done: make(chan struct{}),
		find: findGalera, ready: "ready for connections", quickly: syscall.SIGKILL,
		install: func(s *server, paths []string) error {
			if name == "first" {
				return installMariaDB(s, paths)
			}
			// The second node copies the data of the first.
			galera[0].startOnce()
			if <-galera[0].done; galera[0].err != nil {
				return galera[0].err
			}
			data := filepath.Join(s.dir, "data")
			if err := os.Mkdir(data, 0o700); err != nil || s.uid < 0 {
				return err
			}
			return os.Chown(data, s.uid, s.gid)
		},
		command: func(s *server, paths []string) *exec.Cmd {
			ports := freePorts(3)
			address := "gcomm://"
			if name == "first" {
				galeraPort = ports[0]
			} else {
				address += loopback(galeraPort)
			}
			cmd := runMariaDB(s, paths)
			cmd.Args = append(cmd.Args, "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2",
				"--wsrep-on=ON", "--wsrep-provider="+galeraProvider, "--wsrep-node-name="+name,
				"--wsrep-cluster-address="+address, "--wsrep-node-address=127.0.0.1",
				"--wsrep-sst-method=rsync", "--wsrep-sst-receive-address="+loopback(ports[1]),
				fmt.Sprintf("--wsrep-provider-options=base_host=127.0.0.1;base_port=%d;"+
					"gmcast.listen_addr=tcp://%s;ist.recv_addr=%s;gcache.size=8M",
					ports[0], loopback(ports[0]), loopback(ports[2])),
				// Runs the triggers that delay a node; see lag.
				"--slave-run-triggers-for-rbr=ENFORCE")
			return cmd
		},
	}
}

func findGalera() ([]string, bool) {
	paths, found := findMariaDB()
	_, noProvider := os.Stat(galeraProvider)
	_, noRsync := exec.LookPath("rsync")
	return paths, found && noProvider == nil && noRsync == nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// freePorts returns ports that are free now.
func freePorts(n int) (ports []int) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		defer l.Close() // at the end, so that all ports differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// onGalera returns a new database as seen through each node. With interpolate the driver
// prepares no statements.
func onGalera(t *testing.T, interpolate bool) (first, second *database) {
	t.Helper()
	galera[1].require(t)
	k := kind{"Galera", sqlfence.MySQL, openMariaDBOn(galera[0], interpolate), ""}
	first = newDatabase(t, k)
	for _, statement := range []string{
		"CREATE TABLE slow (id BIGINT AUTO_INCREMENT PRIMARY KEY)",
		"CREATE TRIGGER lag BEFORE INSERT ON slow FOR EACH ROW BEGIN IF @@wsrep_node_name = 'second' THEN " +
			"WHILE @@GLOBAL.slow_launch_time = 99 DO DO SLEEP(0.01); END WHILE; END IF; END",
	} {
		first.exec(t, statement)
	}
	second = &database{kind: k, id: first.id, connector: galera[1].connector(t, first.id, interpolate)}
	second.db = second.pool(t, galera[1].connector(t, "", interpolate)) // the database may not be there yet
	second.caughtUpWith(t, first)
	second.db = second.pool(t, second.connector)
	return first, second
}

// caughtUpWith waits until the node has applied what other has committed.
func (d *database) caughtUpWith(t *testing.T, other *database) {
	t.Helper()
	var name, committed string
	row := other.db.QueryRowContext(t.Context(), "SHOW STATUS LIKE 'wsrep_last_committed'")
	if err := row.Scan(&name, &committed); err != nil {
		t.Fatal(err)
	}
	want, err := strconv.ParseInt(committed, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for ctx := deadline(t); ctx.Err() == nil; {
		applied := d.number(t, "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status "+
			"WHERE variable_name = 'WSREP_LAST_COMMITTED'")
		if applied >= want {
			return
		}
	}
	t.Fatal("the node did not catch up")
}

// lag keeps the second node from applying what the first one commits, until end is called.
// The applier runs the trigger of the table slow, which waits there while a variable is set.
func lag(t *testing.T, first, second *database) (end func()) {
	t.Helper()
	second.exec(t, "SET GLOBAL slow_launch_time = 99")
	end = func() { second.exec(t, "SET GLOBAL slow_launch_time = 2") }
	first.exec(t, "INSERT INTO slow () VALUES ()")
	return end
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("the test took 20 s"))
	t.Cleanup(cancel)
	return ctx
}

// lagging are ways to write once with a token, and how often each is tried.
var lagging = map[string]struct {
	rounds int
	write  func(
		ctx context.Context, d *database, g *sqlfence.Guard, resource string, token holdfast.Token, work string,
	) error
}{
	"Guard": {6, func(
		ctx context.Context, d *database, g *sqlfence.Guard, resource string, token holdfast.Token, work string,
	) error {
		return g.Do(ctx, resource, token, d.write(resource, token, work))
	}},
	"Marks": {2, func(
		ctx context.Context, d *database, g *sqlfence.Guard, resource string, token holdfast.Token, work string,
	) error {
		return d.inTx(ctx, func(tx *sql.Tx) error {
			if err := d.marks(quiet).Raise(ctx, sqlfence.SQLTx(tx), resource, token); err != nil {
				return err
			}
			return d.write(resource, token, work)(ctx, tx)
		})
	}},
	"Column": {2, func(
		ctx context.Context, d *database, _ *sqlfence.Guard, resource string, token holdfast.Token, work string,
	) error {
		col, err := sqlfence.NewColumn(d.dialect, "fence")
		if err != nil {
			return err
		}
		return d.inTx(ctx, func(tx *sql.Tx) error {
			res, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance + 1, "+col.Set("?")+
				" WHERE id = ? AND "+col.Where("?"), int64(token), resource, int64(token))
			if err != nil {
				return err
			}
			if err := col.Stale(res, resource, token); err != nil {
				return err
			}
			return d.write(resource, token, work)(ctx, tx)
		})
	}},
}

// Galera detects a conflict between transactions of two nodes only if both have changed the
// same row.
func TestStaleWriteThroughALaggingGaleraNodeIsRefused(t *testing.T) {
	first, second := onGalera(t, true)
	g := first.guard(t, nil)
	second.caughtUpWith(t, first) // otherwise the next guard would create the table again
	late := second.guard(t, nil)
	resources := 0
	for name, way := range lagging {
		landed := 0
		for range way.rounds {
			resources++
			resource := fmt.Sprint(resources) // and, for Column, the id of a row
			first.exec(t, "INSERT INTO accounts (id, balance) VALUES (?, 0)", resources)
			if err := way.write(t.Context(), first, g, resource, 5, "held"); err != nil {
				t.Fatal(err)
			}
			second.caughtUpWith(t, first)
			end := lag(t, first, second)
			if err := way.write(t.Context(), first, g, resource, 7, "newer"); err != nil {
				t.Fatal(err)
			}
			stale := make(chan error, 1)
			go func() { // joined by the receive
				stale <- way.write(t.Context(), second, late, resource, 5, "late")
			}()
			err, decided := second.commitOrError(t, stale)
			end()
			if !decided {
				err = <-stale
			}
			if err == nil {
				landed++
			} else if errors.Is(err, holdfast.ErrOutcomeUnknown) {
				t.Errorf("%s: a refused commit is reported as unknown: %v", name, err)
			}
			second.caughtUpWith(t, first)
			first.caughtUpWith(t, second)
			works, _ := first.works(t, resource)
			if want := []string{"held", "newer"}; !slices.Equal(works, want) {
				t.Errorf("%s: %v: works %v, want %v", name, err, works, want)
			}
		}
		if landed > 0 {
			t.Errorf("%s: %d of %d stale writes landed", name, landed, way.rounds)
		}
	}
}

// commitOrError returns the error of the write, or false once its COMMIT waits for earlier
// transactions.
func (d *database) commitOrError(t *testing.T, done <-chan error) (err error, decided bool) {
	t.Helper()
	for ctx := deadline(t); ctx.Err() == nil; {
		select {
		case err := <-done:
			return err, true
		default:
		}
		if d.number(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'COMMIT'") > 0 {
			return nil, false
		}
	}
	t.Fatal("the write neither failed nor reached its COMMIT")
	return nil, false
}

func TestNoUpdateIsLostBetweenGaleraNodes(t *testing.T) {
	for name, interpolate := range map[string]bool{"interpolated": true, "prepared": false} {
		t.Run(name, func(t *testing.T) { testGaleraNodes(t, interpolate) })
	}
}

// Each work records how many rows it has seen, which gives the order of commits.
// AUTO_INCREMENT does not, because each node has its own numbers.
func testGaleraNodes(t *testing.T, interpolate bool) {
	first, second := onGalera(t, interpolate)
	var guards []*sqlfence.Guard
	for _, d := range []*database{first, second} {
		guards = append(guards, d.guard(t, &sqlfence.Options{Retry: retry()}))
	}
	var newest, landed, stale atomic.Int64
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			var held holdfast.Token
			for range 10 {
				if held == 0 || rand.IntN(3) == 0 {
					held = holdfast.Token(newest.Add(1))
				}
				err := guards[w%2].Do(t.Context(), "r", held, func(ctx context.Context, tx *sql.Tx) error {
					var seen int
					if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM history").Scan(&seen); err != nil {
						return err
					}
					return first.write("r", held, strconv.Itoa(seen))(ctx, tx)
				})
				switch {
				case err == nil:
					landed.Add(1)
				case errors.Is(err, fencing.ErrStale):
					stale.Add(1)
				case errors.Is(err, sqlfence.ErrTxEnded) && !interpolate:
					// The node gave up the transaction silently. Nothing of it may remain.
				default:
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	second.caughtUpWith(t, first)
	first.caughtUpWith(t, second)
	works, tokens := first.works(t, "r")
	inOrder := make([]holdfast.Token, len(works))
	for i, work := range works {
		seen, err := strconv.Atoi(work)
		if err != nil || seen >= len(works) || inOrder[seen] != 0 {
			t.Fatalf("two writers have seen %s of %d works: %v", work, len(works), err)
		}
		inOrder[seen] = tokens[i]
	}
	if !slices.IsSorted(inOrder) || int64(len(works)) != landed.Load() {
		t.Errorf("tokens %v in the order of commits; %d were reported", inOrder, landed.Load())
	}
	if landed.Load() == 0 || stale.Load() == 0 {
		t.Errorf("%d landed, %d refused", landed.Load(), stale.Load())
	}
}
