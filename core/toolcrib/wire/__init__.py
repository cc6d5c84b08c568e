"""What travels between the parts: the admin channel (`publish`) and the agents' surface (`api`)."""
