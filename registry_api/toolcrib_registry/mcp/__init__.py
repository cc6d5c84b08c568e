"""The Model Context Protocol: what its clients ask, in the words of the services. It knows no HTTP but header values."""
