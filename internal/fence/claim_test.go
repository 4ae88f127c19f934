package fence_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
	"github.com/holdfast-go/holdfast/internal/names"
)

// A malformed claim must never look absent.
func TestOnlyOneNameAndOneTokenAreAClaim(t *testing.T) {
	one := []string{"job"}
	longName, veryLong := strings.Repeat("x", fencing.MaxName+1), strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		names, tokens []string
		want          fencing.Claim
		present       bool
		is            error // besides fencing.ErrBadClaim
	}{
		"a claim":             {one, []string{"7"}, claim(7), true, nil},
		"the largest":         {one, []string{"9223372036854775807"}, claim(1<<63 - 1), true, nil},
		"escaped name":        {[]string{"a%20b/%C3%A9"}, []string{"7"}, fencing.Claim{Name: "a b/é", Token: 7}, true, nil},
		"none":                {nil, nil, fencing.Claim{}, false, nil},
		"no token":            {one, nil, fencing.Claim{}, true, fencing.ErrBadClaim},
		"no name":             {nil, []string{"7"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"empty token":         {one, []string{""}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"empty name":          {[]string{""}, []string{"7"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"both empty":          {[]string{""}, []string{""}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"two tokens":          {one, []string{"7", "8"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"the same twice":      {one, []string{"7", "7"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"two names":           {[]string{"job", "job"}, []string{"7"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"joined by a comma":   {one, []string{"7, 8"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"zero":                {one, []string{"0"}, fencing.Claim{}, true, holdfast.ErrNoToken},
		"negative":            {one, []string{"-7"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"overflow":            {one, []string{"9223372036854775808"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"garbage":             {one, []string{"seven"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"hexadecimal":         {one, []string{"0x7"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"leading zero":        {one, []string{"07"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"space":               {one, []string{" 7"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"name with a space":   {[]string{"a b"}, []string{"7"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"name with a control": {[]string{"a\x00b"}, []string{"7"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"cut escape":          {[]string{"a%2"}, []string{"7"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"needless escape":     {[]string{"%61"}, []string{"7"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"small letters":       {[]string{"a%c3%a9"}, []string{"7"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"long name":           {[]string{longName}, []string{"7"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"very long name":      {[]string{veryLong}, []string{"7"}, fencing.Claim{}, true, fencing.ErrBadClaim},
		"very long token":     {one, []string{strings.Repeat("9", 1<<20)}, fencing.Claim{}, true, fencing.ErrBadClaim},
	} {
		got, present, err := fence.ParseClaim(c.names, c.tokens)
		if got != c.want || present != c.present || (err == nil) != (c.is == nil) {
			t.Errorf("%s: %v, present %v, %v", name, got, present, err)
			continue
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, fencing.ErrBadClaim) || !errors.Is(err, c.is) || !errors.As(err, new(*fencing.ClaimError)) {
			t.Errorf("%s: %T %v is not %v", name, err, err, c.is)
		}
		if len(err.Error()) > 1000 { // most of it foreign input
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		}
	}
}

func TestReadAsksForTheTargetOnlyWithAWellFormedClaim(t *testing.T) {
	failed := errors.New("no such account")
	job, seven := []string{"job"}, []string{"7"}
	for name, c := range map[string]struct {
		names, tokens  []string
		resource, lock string
		err            error // of the target
		asked          bool
		is             func(error) bool
	}{
		"fits":        {job, seven, "r", "job", nil, true, func(err error) bool { return err == nil }},
		"missing":     {nil, nil, "r", "job", nil, false, func(err error) bool { return err == fence.ErrMissing }},
		"malformed":   {job, nil, "r", "job", nil, false, is(fencing.ErrBadClaim)},
		"other lock":  {job, seven, "r", "other", nil, true, is(fencing.ErrOtherName)},
		"no resource": {job, seven, "", "job", nil, true, isTargetError},
		"no lock":     {job, seven, "r", "", nil, true, isTargetError},
		"failed":      {job, seven, "r", "job", failed, true, isTargetError},
	} {
		asked := false
		_, resource, err := fence.Read(c.names, c.tokens, func() (string, string, error) {
			asked = true
			return c.resource, c.lock, c.err
		})
		if asked != c.asked || !c.is(err) || err == nil && resource != c.resource {
			t.Errorf("%s: asked %v, resource %q, %v", name, asked, resource, err)
		}
		if errors.Is(err, failed) {
			t.Errorf("%s: %v unwraps to the server's own error", name, err)
		}
	}
}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

func isTargetError(err error) bool { return errors.As(err, new(*fence.TargetError)) }

// FuzzClaim reads up to two values in each field.
func FuzzClaim(f *testing.F) {
	f.Add("job", "", 1, "7", "", 1)
	f.Add("job", "job", 2, "7", "7", 2)
	f.Add("", "", 0, "0", "", 1)
	f.Add("a%20b", "", 1, "-7", "", 1)
	f.Add("a", "", 1, "9223372036854775808", "", 1)
	f.Add("", "", 0, "", "", 0)
	f.Fuzz(func(t *testing.T, name1, name2 string, claimed int, token1, token2 string, tokens int) {
		few := func(n int, values ...string) []string { return values[:min(max(n, 0), len(values))] }
		ns, ts := few(claimed, name1, name2), few(tokens, token1, token2)
		c, present, err := fence.ParseClaim(ns, ts)
		if absent := len(ns) == 0 && len(ts) == 0; present == absent {
			t.Fatalf("%q %q: present is %v", ns, ts, present)
		}
		switch {
		case !present && (err != nil || c != (fencing.Claim{})):
			t.Errorf("absent, and %v, %v", c, err)
		case present && err != nil && !errors.As(err, new(*fencing.ClaimError)):
			t.Errorf("%q %q: %T %v", ns, ts, err, err)
		case present && err == nil && (len(ns) != 1 || len(ts) != 1 || c.Validate() != nil ||
			names.Escape(c.Name) != ns[0] || c.Token.String() != ts[0]):
			t.Errorf("%q %q are read as %v", ns, ts, c)
		}
	})
}
