"""Manifests made of what people have: configurations of MCP clients, server.json, allowlists.json, an address. Pure."""
