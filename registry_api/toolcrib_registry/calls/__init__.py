"""A call: decided, charged, let in, its arguments checked, sent to the tool's backend, and the response judged."""
