package session

import "github.com/holdfast-go/holdfast/internal/lease"

// host is a session as locks and elections see it: three of its parts. The contract of their methods is at lease.Host.
type host struct {
	*env
	*leases
	*work
}

var (
	_ lease.Env    = (*env)(nil)
	_ lease.Leases = (*leases)(nil)
	_ lease.Work   = (*work)(nil)
)

// ref is an alias so that the field of Session is not exported.
type ref = lease.Ref
