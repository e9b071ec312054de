"""How the services are run: the embedded stack, and descriptions for a fleet."""
