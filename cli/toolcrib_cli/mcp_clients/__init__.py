"""MCP clients of other makers: what their configuration looks like, and how it is edited."""
