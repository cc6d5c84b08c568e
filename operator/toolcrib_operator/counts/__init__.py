"""What the loop counts for the metrics: grants and tools, reach, and how long a change takes."""
