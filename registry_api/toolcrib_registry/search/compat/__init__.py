"""Searches as agents of another registry know them, translated to ours and back. Pure."""
