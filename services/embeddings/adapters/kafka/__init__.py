"""What the embeddings service reads of the broker besides its events."""
