package layout

import (
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/names"
)

// ErrEpochMoved: the epoch was raised after the entry was put.
var ErrEpochMoved = errors.New("the fencing epoch was bumped after the entry was put")

// Epoch returns the epoch at revision rev, by what a read of its key has found. ErrEpochMoved: the key was put since.
func Epoch(found []*mvccpb.KeyValue, rev int64) (int64, error) {
	if len(found) == 0 {
		return 0, nil
	}
	if found[0].ModRevision > rev {
		return 0, ErrEpochMoved
	}
	epoch, err := strconv.ParseInt(string(found[0].Value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("fencing epoch at %s is not a number: %.64q", names.Quote(string(found[0].Key)), found[0].Value)
	}
	return epoch, nil
}

// Token makes the fencing token of the entry put at rev, by what a read of the epoch's key has found. A later epoch is
// ErrEpochMoved. It must not be used:
//
//	rev 10  A's entry, in epoch 0; the reply is lost
//	rev 12  B's entry behind it: its token is of epoch 0
//	rev 14  the epoch is raised to 1; A reads it with its retry, and would hold first, with the larger token
func Token(found []*mvccpb.KeyValue, rev int64) (holdfast.Token, error) {
	epoch, err := Epoch(found, rev)
	if err != nil {
		return 0, err
	}
	return holdfast.NewToken(epoch, rev)
}
