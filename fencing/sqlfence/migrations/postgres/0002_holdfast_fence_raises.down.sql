-- For going back to a version of the library from before these columns.
ALTER TABLE holdfast_fence DROP COLUMN raises, DROP COLUMN raised_at;
