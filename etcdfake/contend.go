package etcdfake

import (
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Occupy puts the entry of another client under prefix, such as "holdfast/lock/NAME/@/" or "holdfast/election/NAME/@/".
// The client holds the lock, or leads, if the queue was empty; otherwise it waits. The entry has no lease; release
// deletes it, once. Occupy panics if prefix does not end in "/".
func (s *Server) Occupy(prefix string) (release func()) {
	if !strings.HasSuffix(prefix, "/") {
		panic(fmt.Sprintf("etcdfake: Occupy: prefix %q does not end in \"/\"", prefix))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprintf("%sanother-client-%d", prefix, s.rev+1) // no two entries have one revision
	w := s.begin(ByForce)
	w.put([]byte(key), nil, 0)
	s.commit(w)
	return func() { s.Delete(key) }
}

// RevokeHolder revokes the lease of the oldest entry under prefix: the client that holds the lock, or leads, loses it
// now, with everything else on the lease. Prefix is as for Occupy, or the entry's key. It panics if there is no entry,
// or if it has no lease.
func (s *Server) RevokeHolder(prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var holder *mvccpb.KeyValue
	for _, key := range s.live {
		kv := s.version(key, s.rev)
		if strings.HasPrefix(key, prefix) && (holder == nil || kv.CreateRevision < holder.CreateRevision) {
			holder = kv
		}
	}
	switch {
	case holder == nil:
		panic(fmt.Sprintf("etcdfake: RevokeHolder: there is no key under %q", prefix))
	case holder.Lease == 0:
		panic(fmt.Sprintf("etcdfake: RevokeHolder: %q has no lease", holder.Key))
	}
	s.end(s.leases[holder.Lease], ByForce)
}
