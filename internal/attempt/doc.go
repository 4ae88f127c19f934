// Package attempt gets a request to a member of the cluster that answers.
//
// etcd's client sends a request to the next endpoint in turn. If that member
// hangs, so does the request, although the others would answer at once, and the
// client keeps the member for as long as it answers pings. So a request that may
// be repeated is sent again, beside the first, when no answer has come after a
// pause; see [Once].
//
// A question goes to a majority of the endpoints in the same instant. The
// client's round robin gives requests of one instant to different endpoints, so
// while a minority of the members hangs one of them is answered, whatever other
// requests are on the wheel. Sends that follow one after the other have no such
// guarantee: other traffic, itself repeated at a fixed pace, can turn the wheel
// so that each of them meets the member that hangs.
package attempt
