-- raises grows with every raise of a mark, also by a token that equals it: in a
-- Galera cluster, transactions of two nodes conflict only in rows that both have
-- changed. raised_at is when that was, in seconds since 1970, and 0 if it is not
-- known.
ALTER TABLE holdfast_fence
	ADD COLUMN raises BIGINT NOT NULL DEFAULT 1,
	ADD COLUMN raised_at BIGINT NOT NULL DEFAULT 0;
