// Package requests gets a request to a member of the cluster that replies, and says what became of it.
//
// etcd's client sends each request to the next endpoint in turn. If that member hangs, the request hangs, although the
// others would answer at once; and the client keeps the member as long as it answers pings. So a request that may be
// repeated is sent again beside the first when no reply has come after a pause; see [Once].
//
// It is sent once for each endpoint, at the same moment: a round. The client's round robin gives requests of one moment
// to different endpoints, so each healthy member gets one. Copies sent one after the other have no such guarantee:
// other traffic can move the round robin so that each of them goes to the hung member. A round also leaves the round
// robin where a single request would have left it.
//
// A slow etcd must not be kept slow by copies. So the pause before a round is twice what replies take now, and rounds
// pay for themselves: see budget. What no caller waits for is sent once.
//
// txns.go sends Txns, several in one request if many are due, and says what became of each. refused.go tells a hold
// that etcd has refused a write of its holder.
package requests
