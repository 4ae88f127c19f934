package etcdtest

import "testing"

// LinkTo returns a link that stands before whatever listens at addr.
func LinkTo(t testing.TB, addr string) *Link {
	return (&access{endpoints: []string{addr}}).Link(t)
}
