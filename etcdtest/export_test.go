package etcdtest

import "testing"

// LinkTo returns a link to a server that is not etcd.
func LinkTo(t testing.TB, addr string) *Link {
	return (&access{endpoints: []string{addr}}).Link(t)
}
