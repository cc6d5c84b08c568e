"""The command blocks of pages that are marked `run`, executed as a reader would: in one shell, in order, by the local mode."""
