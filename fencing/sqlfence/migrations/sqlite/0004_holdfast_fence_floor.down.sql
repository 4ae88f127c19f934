-- Forgets the floor: a stale holder passes whose resource's mark has expired.
DELETE FROM holdfast_fence WHERE resource = '';
