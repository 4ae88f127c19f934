package holdfast_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// Part of the format that guards elsewhere rely on.
const (
	largestEpoch    = 1<<15 - 1
	largestRevision = 1<<48 - 1
)

func TestTokenKeepsEpochAndRevision(t *testing.T) {
	for _, epoch := range []int64{0, 1, 2, 4096, largestEpoch - 1, largestEpoch} {
		for _, revision := range []int64{1, 2, 1 << 31, 1 << 47, largestRevision - 1, largestRevision} {
			token, err := holdfast.NewToken(epoch, revision)
			if err != nil || token.Epoch() != epoch || token.Revision() != revision || token <= 0 {
				t.Errorf("NewToken(%d, %d) is %d: epoch %d, revision %d, %v",
					epoch, revision, token, token.Epoch(), token.Revision(), err)
			}
			if epoch == 0 && int64(token) != revision {
				t.Errorf("token %d without an epoch is not the bare revision %d", token, revision)
			}
			if token.Check() != nil || token.Token() != token {
				t.Errorf("%d is not a source of itself: %v", token, token.Check())
			}
		}
	}
	if token, _ := holdfast.NewToken(largestEpoch, largestRevision); token != math.MaxInt64 {
		t.Errorf("the largest token is %d", token)
	}
}

func TestHigherEpochBeatsAnyRevision(t *testing.T) {
	older, _ := holdfast.NewToken(4, largestRevision)
	newer, _ := holdfast.NewToken(5, 1)
	if newer <= older {
		t.Errorf("%d is not above %d", newer, older)
	}
}

func TestTokenOutOfRangeIsRefused(t *testing.T) {
	for _, c := range []struct {
		epoch, revision int64
		argument        string
	}{
		{-1, 1, "epoch"}, {largestEpoch + 1, 1, "epoch"}, {math.MinInt64, math.MinInt64, "epoch"},
		{0, 0, "revision"}, {0, -1, "revision"}, {0, largestRevision + 1, "revision"}, {3, 0, "revision"},
	} {
		token, err := holdfast.NewToken(c.epoch, c.revision)
		var bad *holdfast.ArgumentError
		if token != 0 || !errors.As(err, &bad) || bad.Argument != c.argument {
			t.Errorf("NewToken(%d, %d) is %d, %v", c.epoch, c.revision, token, err)
		} else if c.argument == "revision" &&
			bad.Reason != fmt.Sprintf("is %d, not between 1 and %d", c.revision, int64(largestRevision)) {
			t.Errorf("NewToken(%d, %d): %v", c.epoch, c.revision, err)
		}
	}
}

func TestInvalidTokenNeverPasses(t *testing.T) {
	for _, token := range []holdfast.Token{0, -1, math.MinInt64} {
		if err := token.Check(); !errors.Is(err, holdfast.ErrNoToken) {
			t.Errorf("Check of %d: %v", token, err)
		}
		if text, err := token.MarshalText(); !errors.Is(err, holdfast.ErrNoToken) {
			t.Errorf("MarshalText of %d: %q, %v", token, text, err)
		}
		if text, err := json.Marshal(token); !errors.Is(err, holdfast.ErrNoToken) {
			t.Errorf("JSON of %d: %q, %v", token, text, err)
		}
	}
}

var notTokens = map[string]error{
	"":                       strconv.ErrSyntax,
	"0":                      holdfast.ErrNoToken,
	"00":                     strconv.ErrSyntax,
	"01":                     strconv.ErrSyntax,
	"-1":                     strconv.ErrSyntax,
	"+1":                     strconv.ErrSyntax,
	" 1":                     strconv.ErrSyntax,
	"1 ":                     strconv.ErrSyntax,
	"1\n":                    strconv.ErrSyntax,
	"1_000":                  strconv.ErrSyntax,
	"1,000":                  strconv.ErrSyntax,
	"0x10":                   strconv.ErrSyntax,
	"1e3":                    strconv.ErrSyntax,
	"1.0":                    strconv.ErrSyntax,
	"\u0661":                 strconv.ErrSyntax, // an Arabic digit
	"9223372036854775808":    strconv.ErrRange,
	"99999999999999999999":   strconv.ErrRange,
	strings.Repeat("1", 1e6): strconv.ErrRange,
	strings.Repeat("x", 1e6): strconv.ErrSyntax,
}

func TestTextThatIsNotATokenIsRefused(t *testing.T) {
	for n, quoted := range map[int]string{40: strings.Repeat("x", 40) + `"`, 41: strings.Repeat("x", 40) + `"…`} {
		_, err := holdfast.ParseToken(strings.Repeat("x", n))
		if err == nil || !strings.HasPrefix(err.Error(), `token "`+quoted+": ") {
			t.Errorf("%d letters: %v", n, err)
		}
	}
	for text, want := range notTokens {
		token, err := holdfast.ParseToken(text)
		if token != 0 || !errors.Is(err, want) {
			t.Errorf("ParseToken(%.40q) is %d, %.80v; want %v", text, token, err, want)
		}
		if len(err.Error()) > 200 {
			t.Errorf("ParseToken(%.40q): the error has %d bytes", text, len(err.Error()))
		}
		token = 7
		if err := token.UnmarshalText([]byte(text)); !errors.Is(err, want) || token != 7 {
			t.Errorf("UnmarshalText(%.40q) made %d, %.80v", text, token, err)
		}
		quoted, _ := json.Marshal(text)
		if err := json.Unmarshal(quoted, &token); err == nil || token != 7 {
			t.Errorf("JSON %.40s made %d, %.80v", quoted, token, err)
		}
	}
}

func TestJSONFormIsAString(t *testing.T) {
	type message struct {
		Name  string         `json:"name"`
		Token holdfast.Token `json:"token,omitzero"`
	}
	in := message{"billing/job-7", math.MaxInt64}
	data, err := json.Marshal(in)
	if want := `{"name":"billing/job-7","token":"9223372036854775807"}`; err != nil || string(data) != want {
		t.Errorf("got %s, %v", data, err)
	}
	var out message
	if err := json.Unmarshal(data, &out); err != nil || out != in {
		t.Errorf("came back as %+v, %v", out, err)
	}
	if data, err := json.Marshal(message{Name: "a"}); err != nil || string(data) != `{"name":"a"}` {
		t.Errorf("without a token %s, %v", data, err)
	}
	// A number may have been rounded, and null would leave the token of an earlier
	// message.
	for _, bad := range []string{`5`, `5.0`, `null`, `"\u0035"`, `"5`, `""`, `"0"`, `["5"]`, `true`, `{}`} {
		out.Token = 9
		err := out.Token.UnmarshalJSON([]byte(bad))
		if err == nil || out.Token != 9 {
			t.Errorf("%s made %d, %v", bad, out.Token, err)
		}
		if err := json.Unmarshal([]byte(`{"token":`+bad+`}`), &out); err == nil || out.Token != 9 {
			t.Errorf("in an object %s made %d, %v", bad, out.Token, err)
		}
	}
}

func TestLogsShowTheTokenAsText(t *testing.T) {
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "token", holdfast.Token(1<<62), "none", holdfast.Token(0))
	if want := `"token":"4611686018427387904","none":"0"`; !strings.Contains(out.String(), want) {
		t.Errorf("logged %s", out.String())
	}
}

func FuzzParseToken(f *testing.F) {
	for text := range notTokens {
		if len(text) < 100 {
			f.Add(text)
		}
	}
	for _, n := range []int64{1, 9, 10, 1 << 48, 1<<53 + 1, math.MaxInt64} {
		f.Add(strconv.FormatInt(n, 10))
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := holdfast.ParseToken(text)
		// The reference: an integer of any size whose decimal form is the text.
		n, ok := new(big.Int).SetString(text, 10)
		valid := ok && n.String() == text && n.Sign() > 0 && n.IsInt64()
		switch {
		case valid && (err != nil || int64(token) != n.Int64()):
			t.Errorf("%q is %d, %v", text, token, err)
		case !valid && (err == nil || token != 0):
			t.Errorf("%q was accepted as %d", text, token)
		case valid && token.String() != text:
			t.Errorf("%q comes back as %q", text, token)
		}
	})
}

func FuzzTokenJSON(f *testing.F) {
	for _, s := range []string{
		`"1"`, `1`, `null`, `"01"`, `"\u0031"`, ` "1" `, `"9223372036854775807"`, `"9223372036854775808"`, `"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		token := holdfast.Token(7)
		if err := json.Unmarshal(data, &token); err != nil {
			if token != 7 {
				t.Errorf("%q failed and still made %d", data, token)
			}
			return
		}
		back, err := json.Marshal(token)
		if err != nil || token <= 0 || !bytes.Equal(back, bytes.Trim(data, " \t\r\n")) {
			t.Errorf("%q was accepted as %d, which is written %s, %v", data, token, back, err)
		}
	})
}

func ExampleToken() {
	token, err := holdfast.NewToken(0, 4711) // as a lock's Token method does
	fmt.Println(token, err)

	data, _ := json.Marshal(map[string]any{"name": "billing/job-7", "token": token})
	fmt.Println(string(data))

	received, err := holdfast.ParseToken("4712")
	fmt.Println(received > token, err)

	_, err = holdfast.ParseToken("4 712")
	fmt.Println(err)

	fmt.Println(holdfast.Token(0).Check())
	// Output:
	// 4711 <nil>
	// {"name":"billing/job-7","token":"4711"}
	// true <nil>
	// token "4 712": invalid syntax
	// no fencing token
}
