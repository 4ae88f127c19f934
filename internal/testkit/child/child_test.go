//go:build unix

package child_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/child"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

// runParent in the environment makes this test binary run beParent.
const runParent = "CHILD_TEST_RUN_PARENT"

func TestMain(m *testing.M) {
	child.Main(work)
	if addr := os.Getenv(runParent); addr != "" {
		beParent(addr)
	}
	leak.Main(m)
}

// job is the job of a child in these tests.
type job struct {
	Do   string
	Addr string // where to connect to
}

type event struct{ Text text }

// text has a value that cannot be encoded.
type text string

func (t text) MarshalText() ([]byte, error) {
	if t == "unencodable" {
		return nil, errors.New("it cannot be encoded")
	}
	return []byte(t), nil
}

func work(ctx context.Context, name string, j job, parent *child.Parent[event]) error {
	switch j.Do {
	case "echo": // until an empty message
		for {
			switch heard, err := parent.Hear(ctx); {
			case err != nil:
				parent.Say("asked to end", event{text(err.Error())})
				return nil
			case heard == "":
				return nil
			default:
				parent.Say("echo", event{text(name + " heard " + heard)})
			}
		}
	case "report much":
		for i := range 1000 {
			parent.Say("one of many", event{text(fmt.Sprint(i))})
		}
	case "report the unencodable":
		parent.Say("unencodable", event{"unencodable"})
		_, err := parent.Hear(ctx)
		return err
	case "read nothing":
		<-ctx.Done()
		return context.Cause(ctx)
	case "print nonsense":
		fmt.Println("no event")
		<-ctx.Done()
	case "start a child":
		c, err := child.Start[event]("child's", job{Do: "echo"})
		return child.KillAll(err, c)
	case "spin":
		parent.Say("spins", event{})
		spin(ctx)
	case "connect":
		return connect(ctx, j.Addr, parent)
	}
	return errors.New("an example of a failure")
}

// spin keeps a thread busy for each processor.
func spin(ctx context.Context) {
	for range runtime.GOMAXPROCS(0) {
		go func() { // ends with the process
			for ctx.Err() == nil {
			}
		}()
	}
	<-ctx.Done()
}

// start starts a child that ends with the test.
func start(t *testing.T, j job) *child.Child[event] {
	t.Helper()
	c, err := child.Start[event]("A", j)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	return c
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// tell sends a message and returns its echo.
func tell(t *testing.T, c *child.Child[event], message string) (echo string) {
	t.Helper()
	if err := c.Tell(message); err != nil {
		t.Fatal(err)
	}
	ev, err := c.Await(deadline(t), "echo")
	if err != nil {
		t.Fatal(err)
	}
	return string(ev.Text)
}

func TestMessagesAndEventsUntilTheChildExits(t *testing.T) {
	t.Parallel()
	c := start(t, job{Do: "echo"})
	for _, message := range []string{"this", "two\nlines", strings.Repeat("much of it ", 10_000)} {
		if got, want := tell(t, c, message), "A heard "+message; got != want {
			t.Errorf("the echo is %.80q, want %.80q", got, want)
		}
	}
	if err := c.Tell(""); err != nil {
		t.Error(err)
	}
	if err := c.Exited(deadline(t)); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(c.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process still exists: %v", err)
	}
}

func TestUnexpectedEventsAndEndsAreErrors(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	ended, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("waited long enough"))
	await := func(ctx context.Context, do, what string) error {
		_, err := start(t, job{Do: do}).Await(ctx, what)
		return err
	}
	exited := func(ctx context.Context, do string) error { return start(t, job{Do: do}).Exited(ctx) }
	for want, err := range map[string]error{
		`process A reported "one of many" instead of "another"`: await(ctx, "report much", "another"),
		`process A reported "one of many" instead of ending`:    exited(ctx, "report much"),
		`process A ended (exit status 1) instead of`:            await(ctx, "fail", "anything"),
		`process A ended: exit status 1`:                        exited(ctx, "fail"),
		`process A ended (it printed something that is not`:     await(ctx, "print nonsense", "anything"),
		`process A did not report "anything": waited long`:      await(ended, "echo", "anything"),
		`process A did not end: waited long enough`:             exited(ended, "echo"),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s…", err, want)
		}
	}
}

func TestKillAllAddsStderrToAnError(t *testing.T) {
	t.Parallel()
	c := start(t, job{Do: "fail"})
	_ = c.Exited(deadline(t))
	if err := child.KillAll(nil, nil, c); err != nil {
		t.Error(err)
	}
	failure := errors.New("not observed")
	err := child.KillAll(failure, nil, c)
	want := "not observed\nstderr of process A:\nan example of a failure"
	if !errors.Is(err, failure) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestEventThatCannotBeEncodedEndsWork(t *testing.T) {
	t.Parallel()
	c := start(t, job{Do: "report the unencodable"})
	err := child.KillAll(c.Exited(deadline(t)), c)
	if err == nil || !strings.Contains(err.Error(), "it cannot be encoded") {
		t.Error(err)
	}
}

// Unread messages would hide the end of the parent from it.
func TestChildThatDoesNotReadItsMessagesEnds(t *testing.T) {
	t.Parallel()
	c := start(t, job{Do: "read nothing"})
	for range 17 {
		if err := c.Tell("something"); err != nil {
			break // it has ended
		}
	}
	err := child.KillAll(c.Exited(deadline(t)), c)
	if err == nil || !strings.Contains(err.Error(), "more messages than work reads") {
		t.Error(err)
	}
}

func TestChildCannotStartChildren(t *testing.T) {
	t.Parallel()
	c := start(t, job{Do: "start a child"})
	err := child.KillAll(c.Exited(deadline(t)), c)
	if err == nil || !strings.Contains(err.Error(), "a child cannot start children") {
		t.Error(err)
	}
}

func TestSIGTERMEndsTheContextOfWork(t *testing.T) {
	t.Parallel()
	c := start(t, job{Do: "echo"})
	tell(t, c, "so it runs")
	if err := c.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if _, err := c.Await(deadline(t), "asked to end"); err != nil {
		t.Error(err)
	}
	if err := c.Exited(deadline(t)); err != nil {
		t.Error(err)
	}
}
