// Package calls is how long a call goes on: the contexts that end it with its session or its lease, the pauses before
// it asks again, and what its error says when the session or the client was closed meanwhile.
package calls
