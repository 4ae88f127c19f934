-- raises grows with every raise of a mark, also by a token that equals it;
-- raised_at is when that was, in seconds since 1970, and 0 if it is not known.
ALTER TABLE holdfast_fence
	ADD COLUMN IF NOT EXISTS raises bigint NOT NULL DEFAULT 1,
	ADD COLUMN IF NOT EXISTS raised_at bigint NOT NULL DEFAULT 0;
