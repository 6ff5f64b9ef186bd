"""Multicast: which groups of brokers carry an event (docs/concepts/multicast.md)."""
