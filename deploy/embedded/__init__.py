"""PostgreSQL, a Kafka-protocol broker and the services as child processes of one supervisor."""
