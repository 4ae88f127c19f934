package memfence_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/fencingtest"
	"github.com/holdfast-go/holdfast/internal/testkit/leak"
)

var (
	claim    = fencingtest.Claim
	newToken = fencingtest.NewToken
	do       = fencingtest.Do
	mustSay  = fencingtest.MustSay
)

func TestMain(m *testing.M) { leak.Main(m) }
