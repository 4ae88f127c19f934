// Package etcderr says what an error of etcd means for the request that failed:
// may it have been carried out, and is it worth sending again? Use it for your
// own requests to etcd; locks, elections and sessions use it for theirs.
//
// [Classify] sorts errors by what they say about a request that changes
// something. The class that matters most is [Unknown]: there was no answer, so
// the request may have been carried out, may be carried out later (seconds later,
// from the socket of a paused server), or may be lost. Any other class means that
// etcd is known to have refused the request before it did anything. An error that
// is not recognised is Unknown.
//
// [Retryable] answers another question: is it worth sending the request again?
// That applies to reads, and to writes that may be carried out twice. Package
// backoff has the loop.
//
// [WithConnection] adds to the end of a context why the client had no connection.
//
// # What is not guaranteed
//
// A class is about one request as etcd's client reports it. When a server or
// proxy answers DeadlineExceeded or Canceled while the context of the request is
// alive, etcd's client sends the same request again, writes included, up to 100
// times, and reports only the last answer.
package etcderr
