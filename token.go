package holdfast

import (
	"fmt"
	"log/slog"
	"strconv"
)

// Token is the fencing token of an exclusive holder: epoch<<48 | the create revision of its entry in etcd. The epoch is
// 0 until an operator raises it with etcdfence.BumpEpoch. Tokens of different names cannot be compared. Zero means "no
// token"; tokens of zero or less never pass a guard. A Token is a fencing.Source, for a holder elsewhere.
type Token int64

const (
	revisionBits = 48
	maxRevision  = 1<<revisionBits - 1
	maxEpoch     = 1<<(63-revisionBits) - 1
)

// NewToken returns the token of an epoch (0 to 32767) and a revision (1 to 2⁴⁸-1). The error is an *[ArgumentError].
func NewToken(epoch, revision int64) (Token, error) {
	if epoch < 0 || epoch > maxEpoch {
		return 0, &ArgumentError{"epoch", fmt.Sprintf("is %d, not between 0 and %d", epoch, maxEpoch)}
	}
	if revision < 1 || revision > maxRevision {
		return 0, &ArgumentError{"revision", fmt.Sprintf("is %d, not between 1 and %d", revision, maxRevision)}
	}
	return Token(epoch<<revisionBits | revision), nil
}

// ParseToken reads the format of [Token.String]: decimal digits from 1 to 2⁶³-1, without sign, spaces or leading zeros.
// The error Is [ErrNoToken] for "0", else strconv.ErrSyntax or strconv.ErrRange.
func ParseToken(s string) (Token, error) {
	if s == "0" {
		return 0, badToken(s, ErrNoToken)
	}
	if s == "" || s[0] == '0' {
		return 0, badToken(s, strconv.ErrSyntax)
	}
	for i := range len(s) { // ParseInt accepts a sign
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

// badToken quotes at most 40 bytes of s: it is foreign input.
func badToken(s string, err error) error {
	const most = 40
	if len(s) > most {
		return fmt.Errorf("token %q…: %w", s[:most], err)
	}
	return fmt.Errorf("token %q: %w", s, err)
}

// Epoch returns the operator's epoch, 0 if none was set.
func (t Token) Epoch() int64 { return int64(t) >> revisionBits }

// Revision returns the create revision of the holder's entry.
func (t Token) Revision() int64 { return int64(t) & maxRevision }

// String returns the token in decimal.
func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }

// Token returns t. It implements fencing.Source.
func (t Token) Token() Token { return t }

// Check returns [ErrNoToken] if t is zero or negative. It implements fencing.Source, but cannot know whether the holder
// still holds.
func (t Token) Check() error {
	if t <= 0 {
		return ErrNoToken
	}
	return nil
}

// MarshalText returns the format of [Token.String]. An invalid token is
// [ErrNoToken]; use "omitzero" for optional fields.
func (t Token) MarshalText() ([]byte, error) {
	if t <= 0 {
		return nil, ErrNoToken
	}
	return strconv.AppendInt(nil, int64(t), 10), nil
}

// UnmarshalText reads like [ParseToken]. On error it leaves t unchanged.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := ParseToken(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}

// MarshalJSON returns the token as a JSON string such as "123", because many
// readers round numbers above 2⁵³. An invalid token is [ErrNoToken].
func (t Token) MarshalJSON() ([]byte, error) {
	if t <= 0 {
		return nil, ErrNoToken
	}
	return strconv.AppendQuote(nil, t.String()), nil
}

// UnmarshalJSON reads what MarshalJSON writes, and refuses a number and null. On error it leaves t unchanged.
func (t *Token) UnmarshalJSON(data []byte) error {
	if len(data) < 2 || data[0] != '"' || data[len(data)-1] != '"' {
		return badToken(string(data), errNotString)
	}
	return t.UnmarshalText(data[1 : len(data)-1])
}

var errNotString = fmt.Errorf("%w: not a JSON string", strconv.ErrSyntax)

// LogValue logs the token as text.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }
