-- The floor, under the empty name, which no resource has: tokens below it are
-- refused for resources without a mark. 1 refuses none.
INSERT INTO holdfast_fence (resource, lock_name, token) VALUES ('', '', 1) ON CONFLICT DO NOTHING;
