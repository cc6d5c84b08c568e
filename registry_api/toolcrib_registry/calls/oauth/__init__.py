"""Access tokens for backends: asked of authorization servers, kept in memory, never shown."""
