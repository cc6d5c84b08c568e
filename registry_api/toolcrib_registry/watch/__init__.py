"""Live updates of a caller's view, and how many streams there may be."""
