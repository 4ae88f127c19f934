// Command v3.5 is an etcd 3.5 server for the tests in package versions.
package main

import "github.com/holdfast-go/holdfast/tests/compat/versions/member"

func main() { member.Main() }
