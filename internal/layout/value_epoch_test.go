package layout

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
)

// The token of an entry has the epoch that stood when the entry was put. A later epoch leaves that unknown.
func TestTokenIsLeftOutIfTheEpochIsNewerThanTheEntry(t *testing.T) {
	t.Parallel()
	entry := &mvccpb.KeyValue{CreateRevision: 10}
	epoch := func(value string, mod int64) []*mvccpb.KeyValue {
		return []*mvccpb.KeyValue{{Value: []byte(value), ModRevision: mod}}
	}
	for name, c := range map[string]struct {
		epoch []*mvccpb.KeyValue
		want  int64
	}{
		"no epoch":  {nil, 10},
		"older":     {epoch("3", 9), 3<<48 | 10},
		"as old":    {epoch("3", 10), 3<<48 | 10},
		"newer":     {epoch("3", 11), 0},
		"no number": {epoch("three", 9), 0},
		"negative":  {epoch("-1", 9), 0},
	} {
		if token, err := Token(c.epoch, entry.CreateRevision); int64(token) != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%s: token %d, %v, want %d", name, token, err, c.want)
		}
	}
}

func TestTokenOfAnEntryInAView(t *testing.T) {
	t.Parallel()
	kv := &mvccpb.KeyValue{CreateRevision: 20}
	token := func(epoch int64) holdfast.Token {
		token, err := holdfast.NewToken(epoch, 20)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	for value, want := range map[string]holdfast.Token{"": token(0), "9": token(9), "12": token(12), "nine": 0} {
		var epoch []*mvccpb.KeyValue
		if value != "" {
			epoch = []*mvccpb.KeyValue{{Value: []byte(value), ModRevision: 20}}
		}
		if got, err := Token(epoch, kv.CreateRevision); got != want || (err != nil) != (want == 0) {
			t.Errorf("with epoch %q: %v, %v, want %v", value, got, err, want)
		}
	}
	raised := []*mvccpb.KeyValue{{Value: []byte("9"), ModRevision: 21}}
	if got, err := Token(raised, kv.CreateRevision); got != 0 || !errors.Is(err, ErrEpochMoved) {
		t.Errorf("with an epoch that was raised since: %v, %v", got, err)
	}
}
