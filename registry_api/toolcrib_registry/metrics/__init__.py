"""What is counted, and how many series there may be."""
