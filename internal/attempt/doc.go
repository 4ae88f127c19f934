// Package attempt gets a request to a member of the cluster that answers.
//
// etcd's client sends a request to the next endpoint in turn. If that member
// hangs, so does the request, although the others would answer at once. So a
// request that may be repeated is sent again, beside the first, when no answer
// has come after a pause.
package attempt
