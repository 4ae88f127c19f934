// Package attempt gets a request to a member of the cluster that answers.
//
// etcd's client sends a request to the next endpoint in turn. If that member
// hangs, so does the request, although the others would answer at once, and the
// client keeps the member for as long as it answers pings. So a request that may
// be repeated is sent again, beside the first, when no answer has come after a
// pause; see [Once].
//
// It is sent again as many times as there are endpoints, in the same instant. The
// client's round robin gives requests of one instant to different endpoints, so
// each member that is well gets one, whatever other requests are on the wheel.
// Sends that follow one after the other have no such guarantee: other traffic,
// itself repeated at a fixed pace, can turn the wheel so that each of them meets
// the member that hangs.
//
// Fewer would do while a minority hangs, but three of three endpoints also leave
// the wheel where one send would have left it. After the first send and two more
// it would stand at the member that hangs again, and the next request begin
// there: one that sends its requests one by one would meet it every time.
package attempt
