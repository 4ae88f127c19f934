-- For going back to a version of the library from before this column.
ALTER TABLE holdfast_fence DROP COLUMN raises;
