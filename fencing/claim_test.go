package fencing_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/internal/fence"
)

// named is a holder that knows its name, as locks and terms do.
type named struct {
	*holder
	name string
}

func (n *named) Name() string { return n.name }

func claim(token int64) fencing.Claim { return fencing.Claim{Name: "job", Token: fencing.Token(token)} }

func TestHolderThatMayNotBeUsedPresentsNothing(t *testing.T) {
	lost, suspended := errors.New("lost"), holdfast.ErrSuspended
	holds := func(name string, token fencing.Token, check error) *named {
		return &named{&holder{token: token, check: func() error { return check }}, name}
	}
	for name, c := range map[string]struct {
		s    fencing.Source
		want error
	}{
		"held":           {holds("job", 7, nil), nil},
		"lost":           {holds("job", 7, lost), lost},
		"suspended":      {holds("job", 7, suspended), suspended},
		"no token":       {holds("job", 0, nil), fencing.ErrNoToken},
		"negative token": {holds("job", -7, nil), fencing.ErrNoToken},
		"empty name":     {holds("", 7, nil), fencing.ErrNoName},
		"long name":      {holds(strings.Repeat("x", fencing.MaxName+1), 7, nil), fencing.ErrBadClaim},
		"not named":      {holds("job", 7, nil).holder, fencing.ErrNoName},
		"a bare token":   {fencing.Token(7), fencing.ErrNoName},
		"no bare token":  {fencing.Token(0), fencing.ErrNoToken},
		"nil":            {nil, fencing.ErrNoToken},
		"nil pointer":    {(*named)(nil), fencing.ErrNoToken},
	} {
		got, err := fencing.Present(c.s)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error is %v, want %v", name, err, c.want)
		}
		if want := (fencing.Claim{Name: "job", Token: 7}); c.want == nil && got != want || c.want != nil && got != (fencing.Claim{}) {
			t.Errorf("%s: presents %v", name, got)
		}
	}
}

func TestClaimIsCarriedByItsContextAndNoOther(t *testing.T) {
	type key struct{}
	outer := context.WithValue(t.Context(), key{}, "kept")
	ctx := fencing.NewClaimContext(outer, claim(7))
	if got, ok := fencing.ClaimFromContext(context.WithValue(ctx, key{}, "inner")); !ok || got != claim(7) {
		t.Errorf("carries %v, %v", got, ok)
	}
	if ctx.Value(key{}) != "kept" {
		t.Error("the values of the context beneath are hidden")
	}
	if _, ok := fencing.ClaimFromContext(outer); ok {
		t.Error("a context without a claim has one")
	}
	if _, ok := fencing.FromContext(ctx); ok {
		t.Error("a claim that was presented was taken for a holder")
	}
}

// What is a claim and what is none; what is malformed must never look absent.
func TestOnlyOneNameAndOneTokenAreAClaim(t *testing.T) {
	one := []string{"job"}
	for name, c := range map[string]struct {
		names, tokens []string
		want          fencing.Claim
		present       bool
		is            []error
	}{
		"a claim":             {one, []string{"7"}, claim(7), true, nil},
		"the largest":         {one, []string{"9223372036854775807"}, claim(1<<63 - 1), true, nil},
		"escaped name":        {[]string{"a%20b/%C3%A9"}, []string{"7"}, fencing.Claim{Name: "a b/é", Token: 7}, true, nil},
		"none":                {nil, nil, fencing.Claim{}, false, nil},
		"no token":            {one, nil, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"no name":             {nil, []string{"7"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"empty token":         {one, []string{""}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"empty name":          {[]string{""}, []string{"7"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"both empty":          {[]string{""}, []string{""}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"two tokens":          {one, []string{"7", "8"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"the same twice":      {one, []string{"7", "7"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"two names":           {[]string{"job", "job"}, []string{"7"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"joined by a comma":   {one, []string{"7, 8"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"zero":                {one, []string{"0"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim, fencing.ErrNoToken}},
		"negative":            {one, []string{"-7"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"overflow":            {one, []string{"9223372036854775808"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"garbage":             {one, []string{"seven"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"hexadecimal":         {one, []string{"0x7"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"leading zero":        {one, []string{"07"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"space":               {one, []string{" 7"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"name with a space":   {[]string{"a b"}, []string{"7"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"name with a control": {[]string{"a\x00b"}, []string{"7"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"cut escape":          {[]string{"a%2"}, []string{"7"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"needless escape":     {[]string{"%61"}, []string{"7"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"small letters":       {[]string{"a%c3%a9"}, []string{"7"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"long name":           {[]string{strings.Repeat("x", fencing.MaxName+1)}, []string{"7"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"very long name":      {[]string{strings.Repeat("x", 1<<20)}, []string{"7"}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
		"very long token":     {one, []string{strings.Repeat("9", 1<<20)}, fencing.Claim{}, true, []error{fencing.ErrBadClaim}},
	} {
		got, present, err := fence.ParseClaim(c.names, c.tokens)
		if present != c.present || (err == nil) != (c.is == nil) {
			t.Errorf("%s: %v, present %v, %v", name, got, present, err)
			continue
		}
		if err == nil && got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for _, target := range c.is {
			if !errors.Is(err, target) {
				t.Errorf("%s: %v is not %v", name, err, target)
			}
		}
		if err != nil && !errors.As(err, new(*fencing.ClaimError)) {
			t.Errorf("%s: %T", name, err)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: the error has %d bytes, all of them somebody else's", name, len(err.Error()))
		}
	}
}

func TestEveryNameHasOneText(t *testing.T) {
	var all strings.Builder
	for b := range 256 {
		all.WriteByte(byte(b))
	}
	for name, text := range map[string]string{
		"billing/job-7": "billing/job-7",
		"/legacy":       "/legacy",
		"a b":           "a%20b",
		"100%":          "100%25",
		"é":             "%C3%A9",
		all.String():    fencing.EscapeName(all.String()),
	} {
		got := fencing.EscapeName(name)
		if got != text {
			t.Errorf("%q is written %q, want %q", name, got, text)
		}
		if back, err := fencing.UnescapeName(got); back != name || err != nil {
			t.Errorf("%q comes back as %q, %v", name, back, err)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"billing/job-7", "a b", "%", "%2", "%61", "%C3%A9", "\x00", "ä", "", "%%25"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if text := fencing.EscapeName(s); s != "" && len(s) <= fencing.MaxName {
			if back, err := fencing.UnescapeName(text); back != s || err != nil {
				t.Errorf("name %q, written %q, read %q, %v", s, text, back, err)
			}
			for _, c := range []byte(text) {
				if c <= ' ' || c >= 0x7f || c == ',' || c == ';' || c == '"' {
					t.Errorf("name %q is written %q, which a header may not leave alone", s, text)
				}
			}
		}
		name, err := fencing.UnescapeName(s)
		switch {
		case err == nil && fencing.EscapeName(name) != s:
			t.Errorf("text %q is read as %q, whose text is %q", s, name, fencing.EscapeName(name))
		case err != nil && (!errors.Is(err, fencing.ErrBadClaim) || name != ""):
			t.Errorf("text %q: %q, %v", s, name, err)
		}
	})
}

// FuzzClaim is the header and metadata form: up to two values in each field.
func FuzzClaim(f *testing.F) {
	f.Add("job", "", 1, "7", "", 1)
	f.Add("job", "job", 2, "7", "7", 2)
	f.Add("", "", 0, "0", "", 1)
	f.Add("a%20b", "", 1, "-7", "", 1)
	f.Add("a", "", 1, "9223372036854775808", "", 1)
	f.Add("", "", 0, "", "", 0)
	f.Fuzz(func(t *testing.T, name1, name2 string, names int, token1, token2 string, tokens int) {
		few := func(n int, values ...string) []string { return values[:min(max(n, 0), len(values))] }
		ns, ts := few(names, name1, name2), few(tokens, token1, token2)
		c, present, err := fence.ParseClaim(ns, ts)
		if absent := len(ns) == 0 && len(ts) == 0; present == absent {
			t.Fatalf("%q %q: present is %v", ns, ts, present)
		}
		switch {
		case !present && (err != nil || c != (fencing.Claim{})):
			t.Errorf("absent, and %v, %v", c, err)
		case present && err != nil && (!errors.Is(err, fencing.ErrBadClaim) || !errors.As(err, new(*fencing.ClaimError))):
			t.Errorf("%q %q: %T %v", ns, ts, err, err)
		case present && err == nil && (len(ns) != 1 || len(ts) != 1 || c.Validate() != nil ||
			fencing.EscapeName(c.Name) != ns[0] || c.Token.String() != ts[0]):
			t.Errorf("%q %q are read as %v", ns, ts, c)
		}
	})
}
