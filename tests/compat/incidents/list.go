package main

const etcdClient = "etcd's concurrency package"

// incidents are those of README.md, in its order.
var incidents = []incident{
	{
		"candidate-without-a-lease", "a candidate whose lease ends while it waits is told that it leads",
		etcdClient, candidateWithoutALease, candidateWithoutALeaseHere,
	},
	{
		"failed-campaign-leaves-its-key", "a campaign fails, and its key stands in the way of the others",
		etcdClient, failedCampaign, failedCampaignHere,
	},
	{
		"lock-expires-in-work", "a lock expires silently in a long operation",
		"a model of a lock in Vitess", expiresInWork, expiresInWorkHere,
	},
	{
		"lease-revoked-under-its-holder", "a lease that its client renews is revoked, as by a resumed etcd leader",
		etcdClient, revokedUnderItsHolder, revokedUnderItsHolderHere,
	},
	{
		"two-goroutines-of-a-session", "two goroutines lock one name on one session, and both hold",
		etcdClient, twoGoroutines, twoGoroutinesHere,
	},
	{
		"loss-told-late", "a holder that is cut off is told so late that the next one holds already",
		etcdClient, toldLate, toldLateHere,
	},
	{
		"command-goes-on", "a command goes on for a while when its lock is lost",
		"a model of consul lock", commandGoesOn, commandGoesOnHere,
	},
	{
		"scheduler-cut-off", "a scheduler that leads is cut off, and goes on leading beside the next one",
		"gocron-etcd-elector v1.0.1", schedulerCutOff, schedulerCutOffHere,
	},
	{
		"work-ignores-its-context", "a leader's work does not look at its context, and writes when another one leads",
		"a model of an operator of Cilium, on " + etcdClient, ignoresItsContext, ignoresItsContextHere,
	},
	{
		"campaign-fails-for-ever", "a candidate whose lease has expired in a stall campaigns again and again, in vain",
		etcdClient, campaignsForEver, campaignsForEverHere,
	},
	{
		"leader-half-alive", "a leader goes on leading although its services have failed to start",
		"a model of River, on " + etcdClient, halfAlive, halfAliveHere,
	},
	{
		"shard-on-two-nodes", "a shard is given to two nodes in a rolling restart",
		"a model of Akka.NET's coordinator", allocatedTwice, allocatedTwiceHere,
	},
}
