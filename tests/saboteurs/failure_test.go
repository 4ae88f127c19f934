package main

import (
	"strings"
	"testing"
)

func TestFailureIsWhatTheTestSaidFirst(t *testing.T) {
	for want, said := range map[string]string{
		"a_test.go:7: two held": "=== RUN   TestA\n    a_test.go:5: \n\tmuch\n    a_test.go:7: two held\n" +
			"    a_test.go:9: so\n--- FAIL: TestA (0.1s)\n=== RUN TestB\n    b_test.go:1: another\n",
		"panic: nil":                    "=== RUN   TestA\n    a_test.go:5: a log\npanic: nil\n\ngoroutine 1\n",
		"it says no more":               "--- FAIL: TestA (0.1s)\n",
		"a_test.go:7: in a subtest":     "    a_test.go:7: in a subtest\n--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/x\n",
		"a.go:1: " + long[:292] + "…":   "    a.go:1: " + long + "\n--- FAIL: TestA (0.1s)\n",
		"b_test.go:2: not an empty one": "    b_test.go:1: \n    b_test.go:2: not an empty one\n--- FAIL: TestA (0.1s)\n",
	} {
		if got := failure([]byte(said), "TestA"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

var long = strings.Repeat("x", 400)
