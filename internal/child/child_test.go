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

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/child"
)

// runParent in the environment makes this test binary a parent.
const runParent = "CHILD_TEST_RUN_PARENT"

func TestMain(m *testing.M) {
	child.Main(work)
	if addr := os.Getenv(runParent); addr != "" {
		beParent(addr)
	}
	goleak.VerifyTestMain(m)
}

// job is what a child of these tests is told to do.
type job struct {
	Do   string
	Addr string // where to connect to
}

type event struct{ Text text }

// text is what not all values of can be encoded, like a fencing.Token.
type text string

func (t text) MarshalText() ([]byte, error) {
	if t == "unsayable" {
		return nil, errors.New("it cannot be said")
	}
	return []byte(t), nil
}

func work(ctx context.Context, name string, j job, parent *child.Parent[event]) error {
	switch j.Do {
	case "echo": // until it is told an empty message
		for {
			switch heard, err := parent.Hear(ctx); {
			case err != nil:
				parent.Say("told to end", event{text(err.Error())})
				return nil
			case heard == "":
				return nil
			default:
				parent.Say("echo", event{text(name + " heard " + heard)})
			}
		}
	case "say much":
		for i := range 1000 {
			parent.Say("one of many", event{text(fmt.Sprint(i))})
		}
	case "say what cannot be encoded":
		parent.Say("unsayable", event{"unsayable"})
		_, err := parent.Hear(ctx)
		return err
	case "hear nothing":
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
	return errors.New("what a failure looks like")
}

// spin keeps as many threads busy as there are processors.
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

// tell tells c something, and returns how it is echoed.
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

func TestParentAndChildTalkUntilTheChildEndsWell(t *testing.T) {
	t.Parallel()
	c := start(t, job{Do: "echo"})
	for _, message := range []string{"this", "two\nlines", strings.Repeat("much of it ", 10_000)} {
		if got, want := tell(t, c, message), "A heard "+message; got != want {
			t.Errorf("it says %.80q, want %.80q", got, want)
		}
	}
	if err := c.Tell(""); err != nil {
		t.Error(err)
	}
	if err := c.Exited(deadline(t)); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(c.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("%v, want that there is no such process", err)
	}
}

func TestWhatIsNotAwaitedIsAnError(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	over, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("waited long enough"))
	for want, err := range map[string]error{
		`process A reported "one of many" instead of "another"`: second(start(t, job{Do: "say much"}).Await(ctx, "another")),
		`process A reported "one of many" instead of ending`:    start(t, job{Do: "say much"}).Exited(ctx),
		`process A ended (exit status 1) instead of`:            second(start(t, job{Do: "fail"}).Await(ctx, "anything")),
		`process A ended: exit status 1`:                        start(t, job{Do: "fail"}).Exited(ctx),
		`process A ended (it printed what is no event`:          second(start(t, job{Do: "print nonsense"}).Await(ctx, "anything")),
		`process A did not report "anything": waited long`:      second(start(t, job{Do: "echo"}).Await(over, "anything")),
		`process A did not end: waited long enough`:             start(t, job{Do: "echo"}).Exited(over),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s…", err, want)
		}
	}
}

func second(_ event, err error) error { return err }

func TestWhatAChildWroteToStderrExplainsAnErrorAndNothingElse(t *testing.T) {
	t.Parallel()
	c := start(t, job{Do: "fail"})
	_ = c.Exited(deadline(t))
	if err := child.KillAll(nil, nil, c); err != nil {
		t.Error(err)
	}
	failure := errors.New("not observed")
	err := child.KillAll(failure, nil, c)
	if want := "not observed\nprocess A said:\nwhat a failure looks like"; !errors.Is(err, failure) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestAnEventThatCannotBeEncodedEndsTheWorkAndIsNamed(t *testing.T) {
	t.Parallel()
	c := start(t, job{Do: "say what cannot be encoded"})
	err := child.KillAll(c.Exited(deadline(t)), c)
	if err == nil || !strings.Contains(err.Error(), "it cannot be said") {
		t.Error(err)
	}
}

// It would not see the end of its parent behind messages that nobody takes.
func TestAChildThatIsToldMoreThanItHearsEnds(t *testing.T) {
	t.Parallel()
	c := start(t, job{Do: "hear nothing"})
	for range 17 {
		if err := c.Tell("something"); err != nil {
			break // it has ended
		}
	}
	err := child.KillAll(c.Exited(deadline(t)), c)
	if err == nil || !strings.Contains(err.Error(), "more was told than is heard") {
		t.Error(err)
	}
}

func TestAChildStartsNoChildren(t *testing.T) {
	t.Parallel()
	c := start(t, job{Do: "start a child"})
	err := child.KillAll(c.Exited(deadline(t)), c)
	if err == nil || !strings.Contains(err.Error(), "a child starts no children") {
		t.Error(err)
	}
}

func TestSIGTERMEndsTheContextOfWork(t *testing.T) {
	t.Parallel()
	c := start(t, job{Do: "echo"})
	tell(t, c, "it listens")
	if err := c.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if _, err := c.Await(deadline(t), "told to end"); err != nil {
		t.Error(err)
	}
	if err := c.Exited(deadline(t)); err != nil {
		t.Error(err)
	}
}
