"""What the leader does with the registry's replicas, over their admin channel."""
