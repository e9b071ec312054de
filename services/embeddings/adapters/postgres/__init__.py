"""Ports implemented over PostgreSQL."""
