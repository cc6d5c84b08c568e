CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    definition TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    keeps_messages BOOLEAN NOT NULL,
    retention_seconds DOUBLE PRECISION NOT NULL,
    holder TEXT,
    beat BIGINT NOT NULL,
    pause_asked BOOLEAN NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    changed_at DOUBLE PRECISION NOT NULL
);
CREATE TABLE views (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    agent TEXT NOT NULL,
    account TEXT NOT NULL,
    tools TEXT NOT NULL,
    scopes TEXT NOT NULL,
    PRIMARY KEY (session, agent)
);
CREATE TABLE turns (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    agent TEXT NOT NULL,
    outcome TEXT NOT NULL,
    error TEXT NOT NULL,
    mode TEXT NOT NULL,
    replies BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    answer TEXT,
    started_at DOUBLE PRECISION NOT NULL,
    seconds DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (session, number)
);
CREATE TABLE calls (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    turn BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    number BIGINT NOT NULL,
    agent TEXT NOT NULL,
    tool TEXT NOT NULL,
    arguments_digest TEXT NOT NULL,
    outcome TEXT NOT NULL,
    seconds DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (session, turn, attempt, number)
);
CREATE TABLE uses (
    account TEXT NOT NULL,
    tool TEXT NOT NULL,
    calls BIGINT NOT NULL,
    PRIMARY KEY (account, tool)
);
CREATE INDEX sessions_by_name ON sessions (name, created_at);
