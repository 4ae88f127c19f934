// Command v3.6 is an etcd 3.6 server for the tests in package versions and for the campaign: the latest.
package main

import "github.com/holdfast-go/holdfast/tests/compat/versions/member"

func main() { member.Main() }
