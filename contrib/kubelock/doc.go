// Package kubelock elects leaders of Kubernetes controllers over etcd instead of the API server.
//
// There are two ways:
//
//   - [Runnable], the better one: controller-runtime's manager runs Election.Run, which calls your function for each
//     term and waits for it to return before another replica leads.
//   - [Lock], for programs that have client-go's leaderelection: a resourcelock.Interface, to be given to
//     leaderelection.LeaderElectionConfig or, as LeaderElectionResourceLockInterface, to a manager.
//
// # What is guaranteed
//
//	                            Runnable                          Lock
//	two replicas act at once    only if a process is paused, or   also while a deposed leader's work goes on:
//	                            ignores its context for longer    client-go cancels a context and waits for
//	                            than DrainTimeout                 nothing, a manager exits
//	the next leader starts      when the work has ended; after    within 2.2 RetryPeriods if released
//	                            a crash, when the lease expires   (ReleaseOnCancel), else after LeaseDuration
//	requests while leading      one renewal each 5 s or so for    one write each RetryPeriod for each election
//	                            all elections of a session
//	a loss ends                 the function's context; the       the process, in a manager
//	                            replica is a candidate again
//
// Both give a fencing token, larger than that of each earlier leader: the term's, and that of [Lock.Term]. Whatever
// compares tokens refuses the late writes of a leader that was paused; see package fencing. Kubernetes objects cannot
// compare it: their resourceVersion is what guards them.
//
// # In etcd
//
// The record of client-go is at holdfast/kube/NAME, as JSON; its holder, whose mod revision is the token, is at
// holdfast/kube/NAME/@. Both outlive the leader, and neither has a lease. The entries of an election stand at
// holdfast/election/NAME/@/, as the package admin shows them. A role for a Lock needs:
//
//	etcdctl role grant-permission kube read holdfast/epoch
//	etcdctl role grant-permission --prefix kube readwrite holdfast/kube/
package kubelock
