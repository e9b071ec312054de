"""Traces, metrics and structured logs, exported by the standard variables only."""
