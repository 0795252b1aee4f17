"""Effects of the machine, carried out against the API server."""
