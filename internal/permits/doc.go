// Package permits is what the waiters of a semaphore read: its limit, which stands in etcd, and the permits ahead.
package permits
