"""What crosses a service border, and nothing else: events, their schemas, and the API descriptions."""
