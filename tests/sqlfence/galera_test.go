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

// galera is a cluster of two nodes. They talk to each other over the loopback
// address; clients reach them by their sockets.
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
				fmt.Sprintf("--wsrep-provider-options=base_host=127.0.0.1;base_port=%d;gmcast.listen_addr=tcp://%s;ist.recv_addr=%s;gcache.size=8M",
					ports[0], loopback(ports[0]), loopback(ports[2])),
				// For the triggers that delay a node; see lag.
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

// freePorts returns ports that were free a moment ago.
func freePorts(n int) (ports []int) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		defer l.Close() // together, so that all are different
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// onGalera returns one new database, seen through either node. interpolate has
// the driver prepare no statements.
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
	second.db = second.pool(t, galera[1].connector(t, "", interpolate)) // it may not have the database yet
	second.caughtUpWith(t, first)
	second.db = second.pool(t, second.connector)
	return first, second
}

// caughtUpWith waits until a node has applied what another has committed.
func (d *database) caughtUpWith(t *testing.T, other *database) {
	t.Helper()
	var name, committed string
	if err := other.db.QueryRowContext(t.Context(), "SHOW STATUS LIKE 'wsrep_last_committed'").Scan(&name, &committed); err != nil {
		t.Fatal(err)
	}
	want, err := strconv.ParseInt(committed, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for ctx := deadline(t); ctx.Err() == nil; {
		if d.number(t, "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status WHERE variable_name = 'WSREP_LAST_COMMITTED'") >= want {
			return
		}
	}
	t.Fatal("the node does not catch up")
}

// lag has the second node apply nothing that the first commits, until the test
// calls the function that it returns. The applier runs the trigger of the table
// slow, which waits on the second node for as long as a variable says so.
func lag(t *testing.T, first, second *database) (end func()) {
	t.Helper()
	second.exec(t, "SET GLOBAL slow_launch_time = 99")
	end = func() { second.exec(t, "SET GLOBAL slow_launch_time = 2") }
	first.exec(t, "INSERT INTO slow () VALUES ()")
	return end
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("a minute has passed"))
	t.Cleanup(cancel)
	return ctx
}

// The write-set of a Galera transaction has the rows that it has changed. Two
// transactions of different nodes conflict only if a row is in both.
func TestStaleWriteThroughALaggingGaleraNodeIsRefused(t *testing.T) {
	first, second := onGalera(t, true)
	g := first.guard(t, nil)
	second.caughtUpWith(t, first) // or else the next guard makes the table once more
	late := second.guard(t, nil)
	const rounds = 10
	landed := 0
	for i := range rounds {
		resource := fmt.Sprint("r", i)
		if err := g.Do(t.Context(), resource, fencing.Token(5), first.write(resource, 5, "held")); err != nil {
			t.Fatal(err)
		}
		second.caughtUpWith(t, first)
		end := lag(t, first, second)
		if err := g.Do(t.Context(), resource, fencing.Token(7), first.write(resource, 7, "newer")); err != nil {
			t.Fatal(err)
		}
		stale := make(chan error, 1)
		go func() { // joined by the receive
			stale <- late.Do(t.Context(), resource, fencing.Token(5), second.write(resource, 5, "late"))
		}()
		err, decided := second.commitOrError(t, stale)
		end()
		if !decided {
			err = <-stale
		}
		if err == nil {
			landed++
		} else if errors.Is(err, holdfast.ErrOutcomeUnknown) {
			t.Errorf("a refused commit is called unknown: %v", err)
		}
		second.caughtUpWith(t, first)
		first.caughtUpWith(t, second)
		works, _ := first.works(t, resource)
		if want := []string{"held", "newer"}; !slices.Equal(works, want) {
			t.Errorf("%s: %v: works %v, want %v", resource, err, works, want)
		}
	}
	if landed > 0 {
		t.Errorf("%d of %d stale writes landed", landed, rounds)
	}
}

// commitOrError returns the write's error, or false once its COMMIT waits on the
// node for what came before it.
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
	t.Fatal("the write neither ends nor commits")
	return nil, false
}

func TestNoUpdateIsLostBetweenGaleraNodes(t *testing.T) {
	for name, interpolate := range map[string]bool{"interpolated": true, "prepared": false} {
		t.Run(name, func(t *testing.T) { testGaleraNodes(t, interpolate) })
	}
}

// Which rows a transaction has seen says in which order they were committed. The
// numbers of AUTO_INCREMENT do not: each node has its own.
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
			var held fencing.Token
			for range 10 {
				if held == 0 || rand.IntN(3) == 0 {
					held = fencing.Token(newest.Add(1))
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
					// The node has given up the transaction, and has not said so.
					// Nothing may be left of it.
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
	inOrder := make([]fencing.Token, len(works))
	for i, work := range works {
		seen, err := strconv.Atoi(work)
		if err != nil || seen >= len(works) || inOrder[seen] != 0 {
			t.Fatalf("two writers have seen %s works, or there were more than %d: %v", work, len(works), err)
		}
		inOrder[seen] = tokens[i]
	}
	if !slices.IsSorted(inOrder) || int64(len(works)) != landed.Load() {
		t.Errorf("tokens %v in the order of commits; %d were reported", inOrder, landed.Load())
	}
	if landed.Load() == 0 || stale.Load() == 0 {
		t.Errorf("%d landed, %d refused: this shows nothing", landed.Load(), stale.Load())
	}
}
