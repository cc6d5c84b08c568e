"""Tools of MCP servers: one `tools/call` a call."""
