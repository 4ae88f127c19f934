// Command campaign has processes acquire locks of all kinds, lead and own shards on a real cluster, while members,
// processes and connections fail, and judges what they saw by etcd's history.
//
//	go run ./tests/campaign -duration 1h -seed 1       # a campaign, with its summary
//	go run ./tests/campaign -sets -duration 3m         # Jepsen's workload for locks, and what each way has lost
//	go run ./tests/campaign -judge DIR/record.json.gz  # judges the record of a round again
//
// It exits with 1 if a promise was broken, and with 2 if it could not run.
package main
