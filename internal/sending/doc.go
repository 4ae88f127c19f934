// Package sending gets a request to a member of the cluster that replies.
//
// etcd's client sends each request to the next endpoint in turn. If that member hangs, the request hangs, although the
// others would answer at once; and the client keeps the member as long as it answers pings. So a request that may be
// repeated is sent again beside the first when no reply has come after a pause; see [Once].
//
// It is sent once for each endpoint, at the same moment. The client's round robin gives requests of one
// moment to different endpoints, so each healthy member gets one, whatever other requests move the round robin.
// Requests sent one after the other have no such guarantee: other traffic, repeated at a fixed pace, can move the
// round robin so that each of them goes to the hung member.
//
// Fewer requests would do while only a minority hangs. But three for three endpoints also leave the round robin
// where a single request would have left it. After the first request and two more, the next one would go to the
// hung member again, and a caller that sends its requests one by one would meet that member every time.
//
// # When etcd is slow
//
// Copies must not add to the load that makes etcd slow: then it would stay slow although the cause has passed. So the
// pause before them is twice what replies take now, and each further pause is half as long again as the one before, or
// three times as long: see Kind.growth. A session sends one round of copies, and the next when enough of its requests
// have been answered: see debt. A request that is a second old gets one copy: see race.round. What no caller waits for
// gets none.
package sending
