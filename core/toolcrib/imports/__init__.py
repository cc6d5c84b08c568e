"""What becomes of a server's list of tools: which Tools are written, which go, which are left out and why. Pure."""
