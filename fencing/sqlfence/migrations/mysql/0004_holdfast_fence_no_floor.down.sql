-- For going back to a version of the library that needs this row.
INSERT IGNORE INTO holdfast_fence (resource, lock_name, token) VALUES ('', '', 1);
