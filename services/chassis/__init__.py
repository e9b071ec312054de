"""Plumbing without a business word: database, messaging, models, observability, HTTP."""
