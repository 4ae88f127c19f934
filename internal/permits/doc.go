// Package permits says what an entry of a semaphore does next, by what a read has shown. Plain data comes in, and a
// decision comes out; package queue sends the requests.
//
// A permit is got at once. A caller that does not fit has a turn in the queue instead. The oldest turn that waits is
// the front: it marks as many turns as fit, by putting them a second time. A marked turn is a permit.
//
//	rev 10  A puts a permit. The limit is 1
//	rev 11  B puts a permit, which does not fit
//	rev 12  B's permit is replaced by a turn; B is the front
//	rev 13  C finds that B waits, and puts a turn
//	rev 15  A releases
//	rev 16  B marks its own turn, and holds; C is the front
//
// Each permit and each turn has a claim. One that stands alone is dead: if it was a permit's, it counts until its delay
// is over. tests/models/semmodel has the algorithm by itself and searches it.
package permits
