-- Ids of sessions that were deleted: none of them begins again, because decision logs still name them.
CREATE TABLE forgotten (
    id TEXT NOT NULL PRIMARY KEY,
    forgotten_at DOUBLE PRECISION NOT NULL
);
