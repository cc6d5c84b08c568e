CREATE TABLE memories (
    issuer TEXT NOT NULL,
    subject TEXT NOT NULL,
    session TEXT NOT NULL,
    number BIGINT NOT NULL,
    turn BIGINT NOT NULL,
    digest TEXT NOT NULL,
    message TEXT NOT NULL,
    stored_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (issuer, subject, session, number),
    UNIQUE (issuer, subject, session, turn, digest)
);
CREATE INDEX memories_by_age ON memories (stored_at);
