"""A shop chain on a real Kafka and PostgreSQL: three stores and an office."""
