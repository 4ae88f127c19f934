// Package reads is how the entries of a queue are read: the operations of a Txn that find those which exclude another
// one, as they stand or as they stood at a revision, and what the replies say of them and of their sessions.
package reads
