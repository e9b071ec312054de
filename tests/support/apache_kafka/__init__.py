"""Apache Kafka from its published jars, for the tests that talk to a broker."""
