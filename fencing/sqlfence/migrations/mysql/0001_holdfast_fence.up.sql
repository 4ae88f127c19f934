-- One row per resource: the largest fencing token that has written to it.
-- VARBINARY: names are compared byte for byte, whatever the collation; one that
-- ignores case would make one resource of two. InnoDB: no other common engine
-- has the transactions and row locks that the guard is made of.
CREATE TABLE IF NOT EXISTS holdfast_fence (
	resource  VARBINARY(1024) NOT NULL PRIMARY KEY,
	lock_name VARBINARY(512) NOT NULL,
	token     BIGINT NOT NULL CHECK (token > 0)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
