"""What is odd about a Tool that is accepted: hidden text, and what makes it hard to find or to call."""
