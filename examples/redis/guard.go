//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
)

// Guard writes to keys of Redis or Valkey, for the newest holder of the lock that guards a key.
type Guard struct {
	// DB must not repeat a request whose connection broke: the command may be done twice. A Client needs MaxRetries: -1. A
	// ClusterClient needs MaxRedirects: -1 as well, since it repeats such requests up to MaxRedirects times; a MOVED is
	// an error then.
	DB redis.Scripter
}

// marks is where the mark of a key is. It never expires: a forgotten mark lets stale holders in.
const marks = "holdfast:fence:"

// do compares, raises the mark and runs one command, and nothing comes in between. A number of Lua is a double, which
// holds a token exactly up to 2^53 only; so tokens are texts of 19 digits, which compare as numbers do.
var do = redis.NewScript(`
local name, mark = unpack(redis.call('HMGET', KEYS[1], 'name', 'token'))
if mark and (name and name ~= ARGV[1] or ARGV[2] < mark) or (mark or ARGV[4]) < ARGV[3] then
	return {'refused', name or '', mark or ''}
end
redis.call('HSET', KEYS[1], 'name', ARGV[1], 'token', ARGV[2])
return {'done', redis.call(ARGV[5], KEYS[2], unpack(ARGV, 6))}`)

// Do runs one command on a key, such as "INCRBY" with -10, and returns its reply. The claim is from fencing.Present, or
// came with a request. Errors are those of a fencing.Store.
func (g *Guard) Do(
	ctx context.Context, key string, c fencing.Claim, command string, args ...any,
) (reply any, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if key == "" || strings.HasPrefix(key, marks) {
		return nil, &fencing.ClaimError{Part: "resource", Reason: "is no key of data"}
	}
	least := max(0, c.Token.Epoch()-fencing.MaxEpochStep) << 48 // marks below it are too far behind
	argv := append([]any{c.Name, digits(c.Token), digits(holdfast.Token(least)), digits(0), command}, args...)
	answer, err := do.Run(ctx, g.DB, []string{marks + key, key}, argv...).Slice()
	var refused redis.Error
	switch {
	case errors.As(err, &refused):
		return nil, fencing.NotDone(err) // the server's answer, as WRONGTYPE or READONLY
	case err != nil:
		return nil, fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, err) // without a reply: it may be done, or later
	case answer[0] == "done":
		return append(answer, nil)[1], nil // a reply of nil is left out
	}
	mark := fencing.Claim{Name: answer[1].(string)}
	if text := strings.TrimLeft(answer[2].(string), "0"); text != "" {
		if mark.Token, err = holdfast.ParseToken(text); err != nil {
			return nil, fencing.NotDone(fmt.Errorf("the mark of %q is damaged: %w", key, err))
		}
	}
	return nil, c.CheckMark(key, mark) // says why
}

func digits(t holdfast.Token) string { return fmt.Sprintf("%019d", int64(t)) }
