"""What would be in effect after a change, and where `toolcrib access` gets its answers."""
