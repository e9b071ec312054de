"""Implementations of the ports. Only ``bootstrap`` builds them."""
