"""Events out (outbox, relay) and events in (intake), over Kafka."""
