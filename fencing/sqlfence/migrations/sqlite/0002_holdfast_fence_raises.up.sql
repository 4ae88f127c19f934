-- raises grows with every raise of a mark, also by a token that equals it.
ALTER TABLE holdfast_fence ADD COLUMN raises INTEGER NOT NULL DEFAULT 1;
