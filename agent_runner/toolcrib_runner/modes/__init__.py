"""How much of its view an agent shows its model: everything, or what the model asked for."""
