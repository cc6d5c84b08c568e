"""A client of MCP servers, in both eras: what it asks, what it takes for an answer, and what it remembers of a server."""
