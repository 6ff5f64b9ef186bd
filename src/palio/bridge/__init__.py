"""Bridges between Palio and other message systems: NATS, AMQP, MQTT and Kafka."""
