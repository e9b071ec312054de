"""The HTTP surface of this service."""
