"""Where sessions and memories are kept: SQLite in the data folder, or PostgreSQL by its URL."""
