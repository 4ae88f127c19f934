// Package etcderr says what an error of etcd means for the request that failed: may it have been carried out
// (Classify), is it worth sending again (Retryable), and why there was no connection (WithConnection).
//
// The class that matters most is Unknown: there was no reply, so the request may have been carried out, may be carried
// out later (seconds later, from the socket of a paused server), or may be lost. With any other class etcd is known to
// have refused the request before it did anything.
//
// A class is about one request as etcd's client reports it. When a server or proxy answers DeadlineExceeded or Canceled
// while the context of the request is alive, etcd's client sends the same request again, writes included, up to 100
// times, and reports only the last answer.
package etcderr
