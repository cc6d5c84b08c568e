"""The search index without a server: a SQLite file, ranked in memory."""
