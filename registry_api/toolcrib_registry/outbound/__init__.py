"""Where the registry may reach out to: the allowlist, the addresses it refuses, and the port of its one client."""
