-- One row per resource: the largest fencing token that has written to it.
CREATE TABLE IF NOT EXISTS holdfast_fence (
	resource  TEXT NOT NULL PRIMARY KEY,
	lock_name TEXT NOT NULL,
	token     INTEGER NOT NULL CHECK (token > 0)
) WITHOUT ROWID;
