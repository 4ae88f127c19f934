package locker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

// A handle that is printed says what it holds, and shows no pointers.
func TestHandlesSayWhatTheyHold(t *testing.T) {
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		sess := kit.Start(t, srv).Sess
		lease := fmt.Sprintf(", lease %x", int64(sess.Lease()))
		expect := func(h fmt.Stringer, want string, release func(context.Context) error) {
			t.Helper()
			if got := fmt.Sprint(h); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, lease) {
				t.Errorf("%q, want %q … %q", got, want, lease)
			}
			if err := release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		lk := mustLock(t, locker.NewMutex(sess, "x"))
		expect(lk, fmt.Sprintf(`lock "x", token %d`, lk.Token()), lk.Unlock)
		rd, err := locker.NewRWMutex(sess, "x").RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expect(rd, `lock "x"`, rd.Unlock)
		down, err := locker.NewRWMutex(sess, "x").LockDowngradable(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expect(down, `lock "x", token `, down.Unlock)
		set := mustLockAll(t, locker.NewSet(sess, locker.Write("x"), locker.Read("y")))
		expect(set, `lock "x", token `, set.Unlock)
		permit := mustPermit(t, locker.NewSemaphore(sess, "x", 1), 1)
		expect(permit, `semaphore "x"`, permit.Release)
		for _, zero := range []fmt.Stringer{&locker.Lock{}, &locker.SetLock{}, &locker.Permit{}} {
			_ = zero.String()
		}
	})
}
