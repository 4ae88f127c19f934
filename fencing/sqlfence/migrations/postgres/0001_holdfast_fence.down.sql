-- Forgets all marks: afterwards a stale holder passes. Only for taking the
-- guard out of use.
DROP TABLE IF EXISTS holdfast_fence;
