"""The runner's hands: HTTP to the registry and to token endpoints, and the OpenAI client."""
