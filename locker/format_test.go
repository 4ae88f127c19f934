package locker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/etcdfake"
	kit "github.com/holdfast-go/holdfast/internal/testkit/queuetest"
	"github.com/holdfast-go/holdfast/locker"
)

// An entry of format 1 has no claim. It is one of a foreign client: it excludes others, and when it goes, whatever the
// reason, the next one holds at once.
func TestEntryOfFormatOneExcludesAndCostsNoDelay(t *testing.T) {
	for name, end := range map[string]func(*kit.Peer){"released": (*kit.Peer).Release, "revoked": (*kit.Peer).Revoke} {
		t.Run(name, func(t *testing.T) {
			etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
				old := kit.JoinAs(t, srv, kit.Entries("x"), func(id clientv3.LeaseID) string {
					return fmt.Sprintf("%x-ABCDEFGHIJKLMNOP", int64(id))
				})
				const value = `{"v":1,"owner":"old","mode":"exclusive","queued_at":"2026-02-03T04:05:06.007Z"}`
				if _, err := srv.Client(t).Put(t.Context(), old.Key, value, clientv3.WithLease(old.Lease)); err != nil {
					t.Fatal(err)
				}
				mu := locker.NewMutex(kit.Start(t, srv).Sess, "x")
				if _, err := mu.TryLock(t.Context()); !errors.Is(err, locker.ErrLocked) {
					t.Errorf("TryLock: %v", err)
				}
				granted := make(chan time.Time, 1)
				go func() {
					if _, err := mu.Lock(t.Context()); err != nil {
						t.Error(err)
					}
					granted <- time.Now()
				}()
				time.Sleep(time.Minute)
				if len(granted) > 0 {
					t.Fatal("two hold")
				}
				begin := time.Now()
				end(old)
				if took := (<-granted).Sub(begin); took > kit.Prompt {
					t.Errorf("the next one holds after %v", took)
				}
			})
		})
	}
}
