"""The stdio bridge `toolcrib mcp`: JSON-RPC on standard input and output, MCP over HTTP to a registry."""
