package member

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/layout"
)

const (
	// MaxWeight is the largest Capacity.Weight: 1000.
	MaxWeight = layout.MaxWeight // 1000

	// MaxZone bounds Capacity.Zone: 256 bytes.
	MaxZone = layout.MaxText // 256
)

// Capacity is what a member takes of the shards; see package shard. The zero value of each field is its default.
// Members of earlier versions, without a field, have the default.
type Capacity struct {
	// Weight is how much the member takes beside others: one of weight 8 takes twice as many shards as one of weight 4.
	// The number of its processors is a good one. Default 1; at most MaxWeight.
	Weight int

	// MaxShards is how many shards the member takes at most. Others take the rest; what is left over has no owner.
	// Default 0: no limit.
	MaxShards int

	// OutOfService: the member goes on, and its shards are handed over to others, as if it left.
	OutOfService bool

	// Zone is where the member runs. Once each member names one, each zone has as many shards as any other, however many
	// members it has. UTF-8, at most MaxZone bytes. Default "": it names none.
	Zone string
}

// Validate returns nil, or a *holdfast.ArgumentError that names the argument and the field.
func (c Capacity) Validate(argument string) error {
	bad := func(field, reason string) error {
		return &holdfast.ArgumentError{Argument: argument + "." + field, Reason: reason}
	}
	switch {
	case c.Weight < 0 || c.Weight > MaxWeight:
		return bad("Weight", fmt.Sprintf("is %d, not between 1 and %d (0: 1)", c.Weight, MaxWeight))
	case c.MaxShards < 0:
		return bad("MaxShards", fmt.Sprintf("is %d, below 0 (0: no limit)", c.MaxShards))
	case len(c.Zone) > MaxZone:
		return bad("Zone", fmt.Sprintf("is longer than %d bytes", MaxZone))
	case !utf8.ValidString(c.Zone):
		return bad("Zone", "is not UTF-8")
	}
	return nil
}

// Capacity returns what the member was last told to take.
func (m *Member) Capacity() Capacity { return m.wants().capacity }

// SetCapacity replaces what the member takes of the shards. It returns as Update does; a bad capacity is a
// *holdfast.ArgumentError.
func (m *Member) SetCapacity(ctx context.Context, c Capacity) error {
	if err := c.Validate("c"); err != nil {
		return err
	}
	return m.change(ctx, "update", change{capacity: &c})
}
