"""Retrieval over what the embeddings service wrote, for people and agents."""
