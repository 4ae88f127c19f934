-- A new table has no row of the floor: it would collide with the one in a dump of
-- the data alone, and psql would then load no mark at all. The first write adds it.
DELETE FROM holdfast_fence WHERE resource = '' AND token = 1;
