package fencing

import (
	"fmt"
	"log/slog"
	"strconv"
)

// Token tells one exclusive holder of a name from those before and after it:
// it is the create revision of the holder's entry in etcd, below an epoch that
// is 0 unless an operator has set one (epoch<<48 | revision). A later holder has
// the larger token.
//
// The zero value is "no token" and never passes a check, nor does a negative
// one. Tokens order the exclusive holders of one name and nothing else: compare
// them only together with that name.
//
// A Token is a [Source] of itself.
type Token int64

const (
	revisionBits = 48
	maxRevision  = 1<<revisionBits - 1
	maxEpoch     = 1<<(63-revisionBits) - 1
)

// TokenError says why something is not a token. Its Err is [ErrNoToken] for
// zero, strconv.ErrSyntax or strconv.ErrRange.
type TokenError struct {
	Input string // what was given, as text
	Err   error
}

func (e *TokenError) Error() string {
	return fmt.Sprintf("fencing: %s is not a token: %v", e.Input, e.Err)
}

func (e *TokenError) Unwrap() error { return e.Err }

// NewToken puts a token together. An epoch from 0 to 32767 and a revision from 1
// to 2⁴⁸-1 are in range; the error is a *[TokenError] otherwise.
func NewToken(epoch, revision int64) (Token, error) {
	if epoch < 0 || epoch > maxEpoch {
		return 0, &TokenError{fmt.Sprintf("epoch %d", epoch), strconv.ErrRange}
	}
	if revision < 1 || revision > maxRevision {
		return 0, &TokenError{fmt.Sprintf("revision %d", revision), strconv.ErrRange}
	}
	return Token(epoch<<revisionBits | revision), nil
}

// ParseToken reads what [Token.String] writes, and nothing else: decimal digits
// without sign, space, separator or leading zero, from 1 to 2⁶³-1. The error is
// a *[TokenError]; for "0" it is [ErrNoToken] too.
func ParseToken(s string) (Token, error) {
	if s == "0" {
		return 0, &TokenError{"0", ErrNoToken}
	}
	if s == "" || s[0] == '0' {
		return 0, badToken(s, strconv.ErrSyntax)
	}
	for i := range len(s) { // ParseInt takes a sign
		if s[i] < '0' || s[i] > '9' {
			return 0, badToken(s, strconv.ErrSyntax)
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, badToken(s, strconv.ErrRange)
	}
	return Token(n), nil
}

// badToken quotes s, which comes from outside, and cuts it short.
func badToken(s string, err error) error {
	const most = 40
	if len(s) > most {
		return &TokenError{strconv.Quote(s[:most]) + "…", err}
	}
	return &TokenError{strconv.Quote(s), err}
}

// Epoch is the operator's epoch, 0 if none was set.
func (t Token) Epoch() int64 { return int64(t) >> revisionBits }

// Revision is the create revision of the holder's entry.
func (t Token) Revision() int64 { return int64(t) & maxRevision }

// String returns the token in decimal, "0" for none.
func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }

// Token returns t, which makes it a [Source].
func (t Token) Token() Token { return t }

// Check returns [ErrNoToken] if t is zero or negative. It cannot know whether
// the holder still holds.
func (t Token) Check() error {
	if t <= 0 {
		return ErrNoToken
	}
	return nil
}

// MarshalText writes the token as [Token.String] does. What is no token has no
// text: the error is [ErrNoToken]. Leave an optional one out ("omitzero").
func (t Token) MarshalText() ([]byte, error) {
	if t <= 0 {
		return nil, &TokenError{t.String(), ErrNoToken}
	}
	return strconv.AppendInt(nil, int64(t), 10), nil
}

// UnmarshalText reads what [ParseToken] does. On an error t is left as it was.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := ParseToken(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}

// MarshalJSON writes the token as a string, "123": many readers of JSON round
// numbers beyond 2⁵³, and one token rounded to the next is a fence with a hole.
// The error for what is no token is [ErrNoToken].
func (t Token) MarshalJSON() ([]byte, error) {
	if t <= 0 {
		return nil, &TokenError{t.String(), ErrNoToken}
	}
	return strconv.AppendQuote(nil, t.String()), nil
}

// UnmarshalJSON accepts what MarshalJSON writes: a string of digits, without
// escapes. A bare number is refused, since whoever wrote it may have rounded
// it. So is null, which would leave the token of the previous message in a
// variable that is used again. The error is a *[TokenError].
func (t *Token) UnmarshalJSON(data []byte) error {
	if len(data) < 2 || data[0] != '"' || data[len(data)-1] != '"' {
		return badToken(string(data), errNotString)
	}
	return t.UnmarshalText(data[1 : len(data)-1])
}

var errNotString = fmt.Errorf("%w: not a JSON string", strconv.ErrSyntax)

// LogValue makes loggers write the token as its text, also when it is zero.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

var _ Source = Token(0)
