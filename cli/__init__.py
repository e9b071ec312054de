"""The ``cauce`` command: a client of the services, and the embedded stack in the foreground."""
