"""MCP servers that are programs of this machine: started, spoken to over standard input and output, and ended with `up`."""
