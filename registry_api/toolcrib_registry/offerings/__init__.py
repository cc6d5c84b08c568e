"""Resources and prompts of MCP servers, within a caller's view: what is listed, what a URI or a name means, and reading it."""
