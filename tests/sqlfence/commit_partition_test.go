package sqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
)

// partition stands between clients and PostgreSQL. Cut ends the clients' connections; the
// server does not notice, as if their host had vanished.
type partition struct {
	dir string // of the socket

	mu      sync.Mutex // protects clients and servers
	clients []net.Conn
	servers []net.Conn
}

func newPartition(t *testing.T) *partition {
	t.Helper()
	postgres.require(t)
	dir, err := os.MkdirTemp("", "sqlfence") // the path of a socket is limited
	if err != nil {
		t.Fatal(err)
	}
	const socket = ".s.PGSQL.5432"
	l, err := net.Listen("unix", filepath.Join(dir, socket))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Join(dir, socket), 0o777)); err != nil {
		t.Fatal(err) // pgbouncer is another user
	}
	p := &partition{dir: dir}
	var all sync.WaitGroup
	all.Go(func() { // ends when l is closed
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", filepath.Join(postgres.dir, socket))
			if err != nil {
				client.Close()
				continue
			}
			p.mu.Lock()
			p.clients, p.servers = append(p.clients, client), append(p.servers, server)
			p.mu.Unlock()
			// Each ends when one of its connections is closed.
			all.Go(func() { _, _ = io.Copy(server, client) })
			all.Go(func() { _, _ = io.Copy(client, server); client.Close() })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.noticed()
		all.Wait()
		os.RemoveAll(dir)
	})
	return p
}

func (p *partition) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.clients {
		c.Close()
	}
	p.clients = nil
}

// noticed tells the server that the clients are gone.
func (p *partition) noticed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.servers {
		c.Close()
	}
	p.servers = nil
}

// PostgreSQL says that the transaction is in progress. That is the partition's fault, not the function's, also
// if pgbouncer stands in front of it.
func TestWorkIsNotBlamedForALostConnection(t *testing.T) {
	d := newDatabase(t, kinds[1])
	d.guard(t, nil)
	for name, through := range map[string]func(t *testing.T, p *partition) *sql.DB{
		"directly": func(t *testing.T, p *partition) *sql.DB {
			dsn := strings.Replace(postgresDSN(d.id), postgres.dir, p.dir, 1)
			c, err := stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(dsn)
			if err != nil {
				t.Fatal(err)
			}
			return d.pool(t, c)
		},
		"pgbouncer": func(t *testing.T, p *partition) *sql.DB {
			return pgbouncerTo(t, d, p.dir, "transaction", "default_query_exec_mode=exec").db
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPartition(t)
			g, err := sqlfence.New(through(t, p), d.dialect, sqlfence.Options{Auditor: quiet})
			if err != nil {
				t.Fatal(err)
			}
			own := errors.New("own")
			for what, c := range map[string]struct{ fails, asks bool }{
				"succeeds": {false, false}, "ignores its error": {false, true},
				"fails": {true, false}, "returns its error": {true, true},
			} {
				err := g.Do(deadline(t), "r", holdfast.Token(5), func(ctx context.Context, tx *sql.Tx) error {
					if err := d.write("r", 5, "never")(ctx, tx); err != nil {
						return err
					}
					p.cut()
					if c.asks {
						if _, err := tx.ExecContext(ctx, "SELECT 1"); err == nil {
							t.Error("the connection still works")
						}
					}
					if c.fails {
						return own
					}
					return nil
				})
				if err == nil || errors.Is(err, sqlfence.ErrTxEnded) || errors.Is(err, own) != c.fails ||
					!strings.Contains(err.Error(), "the connection was lost") {
					t.Errorf("work that %s: %v", what, err)
				}
				p.noticed()
			}
			if works, _ := d.works(t, "r"); len(works) > 0 || d.mark(t, "r") != 0 {
				t.Errorf("works %v, mark %v", works, d.mark(t, "r"))
			}
		})
	}
}
