package locker_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// clusters has a session of each etcd cluster, by the first segment of the names that are kept there.
type clusters map[string]*session.Session

// mutex returns the lock of that name. All processes must have the same table.
func (c clusters) mutex(name string) (*locker.Mutex, error) {
	first, _, _ := strings.Cut(name, "/")
	sess, ok := c[first]
	if !ok {
		return nil, fmt.Errorf("lock %q: no etcd cluster is known for names that begin with %q", name, first)
	}
	return locker.NewMutex(sess, name), nil
}

// Locks of two clusters: each session is one of its own cluster.
func ExampleNewMutex_clusters() {
	_, east, _, endEast := example()
	defer endEast()
	_, west, _, endWest := example()
	defer endWest()

	c := clusters{"billing": east, "media": west}
	for _, name := range []string{"billing/job-7", "media/encode", "other"} {
		mu, err := c.mutex(name)
		if err != nil {
			fmt.Println(err)
			continue
		}
		err = mu.Do(context.Background(), func(_ context.Context, lk *locker.Lock) error {
			fmt.Println(lk.Name(), "is held")
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// billing/job-7 is held
	// media/encode is held
	// lock "other": no etcd cluster is known for names that begin with "other"
}
