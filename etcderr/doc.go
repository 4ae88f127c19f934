// Package etcderr says what an error of etcd means for the request that failed: may it have been carried out
// ([Classify]), is it worth sending again ([Retryable]), was there no connection ([ErrNotConnected]).
//
// The class that matters most is Unknown: without a reply the request may have been carried out, may be later (from the
// socket of a paused server, say), or may be lost. With any other class etcd has refused the request before it did
// anything.
//
// A class is about one request as etcd's client reports it. After DeadlineExceeded or Canceled from a server or proxy,
// etcd's client sends the request again, writes included, up to 100 times, and reports only the last reply.
package etcderr
