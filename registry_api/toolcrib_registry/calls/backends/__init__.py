"""What executes a tool: one module for each kind of backend."""
