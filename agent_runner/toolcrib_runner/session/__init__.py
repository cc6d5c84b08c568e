"""One conversation with a model: its messages, its functions, and what it is told about the tools."""
