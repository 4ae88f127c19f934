// Command v3.5 is an etcd 3.5 server for the tests in package versions and for the campaign: the latest. The oldest
// that is supported, 3.5.28, is not tested: the module proxies that we had do not have it.
package main

import "github.com/holdfast-go/holdfast/tests/compat/versions/member"

func main() { member.Main() }
