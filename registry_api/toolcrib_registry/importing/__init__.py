"""Which tools MCP servers have: a look at each now and then, and at once where a server tells of a change."""
