"""Use cases, one module each, and the ports they need."""
