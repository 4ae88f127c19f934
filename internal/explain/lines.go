package explain

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
)

// Line is what a line of a log says that audit.Log has written, with a handler of log/slog: JSON, text, or the default.
type Line struct {
	Event  audit.Event
	Time   string // as it stands there
	Kind   string
	Name   string
	Key    string
	Token  holdfast.Token
	Cause  string // of a loss
	By     string // Kicked, Removed: the administrator
	Detail string // Kicked, Removed: the reason
	Error  string
	Held   string
}

var (
	record = regexp.MustCompile(`holdfast: (granted|released|detached|attached|lost|kicked|removed)\b`)
	pair   = regexp.MustCompile(`([a-z_.]+)=("(?:[^"\\]|\\.)*"|\S*)`)
	stamp  = regexp.MustCompile(`^(?:time=)?(\d{4}[-/]\d\d[-/]\d\d[T ]\S+)`)
)

// maxLine bounds a line; longer ones are no records.
const maxLine = 1 << 20

// Lines reads the records in a log. All other lines are skipped.
func Lines(from io.Reader) (all []Line, err error) {
	lines := bufio.NewReaderSize(from, maxLine)
	for {
		text, err := lines.ReadSlice('\n')
		if line, ok := parse(strings.TrimSpace(string(text))); ok && !errors.Is(err, bufio.ErrBufferFull) {
			all = append(all, line)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		switch {
		case err == io.EOF:
			return all, nil
		case err != nil:
			return all, fmt.Errorf("read the log: %w", err)
		}
	}
}

// parse returns the record in a line.
func parse(text string) (Line, bool) {
	at := record.FindStringSubmatchIndex(text)
	if at == nil {
		return Line{}, false
	}
	l := Line{Event: audit.Event(text[at[2]:at[3]])}
	fields := make(map[string]string)
	if strings.HasPrefix(text, "{") {
		values := make(map[string]any)
		numbers := json.NewDecoder(strings.NewReader(text))
		numbers.UseNumber()
		if numbers.Decode(&values) != nil || values["msg"] != "holdfast: "+string(l.Event) {
			return Line{}, false
		}
		for k, v := range values {
			fields[k] = fmt.Sprint(v)
		}
		l.Time = fields["time"]
	} else {
		if m := stamp.FindStringSubmatch(text); m != nil {
			l.Time = m[1]
			if date, clock, ok := strings.Cut(text, " "); ok && strings.Contains(date, "/") { // of package log
				l.Time = date + " " + cmp.Or(strings.SplitN(clock, " ", 2)[0], "")
			}
		}
		for _, m := range pair.FindAllStringSubmatch(text[at[1]:], -1) {
			value := m[2]
			if plain, err := strconv.Unquote(value); err == nil {
				value = plain
			}
			fields[m[1]] = value
		}
	}
	token, _ := strconv.ParseInt(fields["token"], 10, 64)
	l.Token = holdfast.Token(token)
	l.Kind, l.Name, l.Key, l.Cause = fields["kind"], fields["name"], fields["key"], fields["cause"]
	l.By, l.Detail, l.Error, l.Held = fields["by"], fields["detail"], fields["error"], fields["held"]
	return l, true
}

// Add adds what records say to the spells that they are about. Records of other names are left out.
func (s *Story) Add(lines []Line) {
	byKey := make(map[string][]*Spell)
	for _, spell := range s.Spells {
		byKey[spell.Entry.Key] = append(byKey[spell.Entry.Key], spell)
	}
	for _, l := range lines {
		if l.Kind != string(s.Queue.Kind) || !strings.HasPrefix(l.Key, s.Queue.Entries) {
			continue
		}
		if spell := of(byKey[l.Key], l.Token); spell != nil {
			spell.Lines = append(spell.Lines, l)
			continue
		}
		s.Lines = append(s.Lines, l)
	}
}

// of returns the spell that a record is about: a key is used again, so the token tells, or that there is one only.
func of(spells []*Spell, token holdfast.Token) *Spell {
	for _, s := range spells {
		if token != 0 && s.Entry.Revision == token.Revision() {
			return s
		}
	}
	if token == 0 && len(spells) == 1 { // a reader's
		return spells[0]
	}
	return nil
}

// Cause returns why the hold was lost: as its holder has recorded it. It reports false if that is not known. A hold
// that was released has none.
func (s *Spell) Cause() (holdfast.Cause, bool) {
	for _, l := range s.Lines {
		if l.Event != audit.Lost {
			continue
		}
		for c := holdfast.CauseExpired; !strings.HasPrefix(c.String(), "Cause("); c++ {
			if c.String() == l.Cause {
				return c, true
			}
		}
	}
	return 0, false
}

// Released reports whether its holder has recorded the release, or the entry says so.
func (s *Spell) Released() bool {
	for _, l := range s.Lines {
		if l.Event == audit.Released {
			return true
		}
	}
	return s.Entry.Released()
}
