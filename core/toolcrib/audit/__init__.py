"""The decision log: its chain, the anchors kept outside the registry, and whether a log is whole."""
