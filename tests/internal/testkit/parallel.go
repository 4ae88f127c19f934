package testkit

import (
	"flag"
	"strconv"
)

// Parallel lets at least n tests of a package run in parallel, whatever -parallel says: for tests that spend most of
// their time waiting, for leases to expire as a rule. TestMain calls it.
func Parallel(n int) {
	flag.Parse()
	parallel := flag.Lookup("test.parallel").Value
	if parallel.(flag.Getter).Get().(int) >= n {
		return
	}
	if err := parallel.Set(strconv.Itoa(n)); err != nil {
		panic(err)
	}
}
