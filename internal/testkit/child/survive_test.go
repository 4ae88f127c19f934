//go:build unix

package child_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/child"
)

// connect is the work of a child that keeps a connection open until it ends, so that any process can see whether it
// lives.
func connect(ctx context.Context, addr string, parent *child.Parent[event]) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	parent.Say("connected", event{})
	<-ctx.Done()
	return nil
}

// beParent starts two children, stops one of them, and waits until it is killed.
func beParent(addr string) {
	ctx := context.Background()
	var err error
	for _, name := range []string{"A", "B"} {
		var c *child.Child[event]
		if c, err = child.Start[event](name, job{"connect", addr}); err != nil {
			break
		}
		if _, err = c.Await(ctx, "connected"); err != nil {
			break
		}
		if name == "A" {
			err = errors.Join(err, c.Stop(ctx))
		}
	}
	fmt.Println(err)
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test, if that does not kill this process
	os.Exit(1)
}

func TestNoChildSurvivesAParentThatIsKilled(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), runParent+"="+l.Addr().String())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parent.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var said string
	if _, err := fmt.Fscanln(out, &said); err != nil || said != "<nil>" {
		t.Errorf("the parent prints %q, %v", said, err)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait() // "signal: killed"
	for range 2 {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		limit, _ := deadline(t).Deadline()
		_ = conn.SetReadDeadline(limit)
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a child survives: %v", err)
		}
		_ = conn.Close()
	}
}
