"""Keeps chunks, vectors and resource embeddings in agreement with the source of record."""
