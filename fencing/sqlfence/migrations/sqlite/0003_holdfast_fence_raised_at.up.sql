-- When the mark was raised, in seconds since 1970; 0 if it is not known.
ALTER TABLE holdfast_fence ADD COLUMN raised_at INTEGER NOT NULL DEFAULT 0;
