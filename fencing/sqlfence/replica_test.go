package sqlfence_test

var (
	primary = &server{}
	replica = &server{}
	standby = &server{}
)
