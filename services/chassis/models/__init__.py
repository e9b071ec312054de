"""Models behind ports: embedding spaces, the local embedder, Gemini."""
