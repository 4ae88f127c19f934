// Command v3.6.9 is an etcd 3.6 server for the tests in package versions: the oldest that is supported. It lacks the
// fix of GHSA-xg4h-6gfc-h4m8, which v3.6 has.
package main

import "github.com/holdfast-go/holdfast/tests/compat/versions/member"

func main() { member.Main() }
