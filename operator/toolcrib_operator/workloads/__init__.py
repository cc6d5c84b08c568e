"""What the operator runs for Agents: how a workload is named, what it is, and keeping it so."""
