-- One row per resource: the largest fencing token that has written to it.
-- COLLATE "C": names are compared byte for byte. The fill factor leaves room
-- for the new version of a row on its own page: every guarded write makes one.
CREATE TABLE IF NOT EXISTS holdfast_fence (
	resource  text COLLATE "C" NOT NULL PRIMARY KEY,
	lock_name text COLLATE "C" NOT NULL,
	token     bigint NOT NULL CHECK (token > 0)
) WITH (fillfactor = 70);
