package watching

// MaxPatience bounds how long a watch is waited for.
const MaxPatience = maxPatience
