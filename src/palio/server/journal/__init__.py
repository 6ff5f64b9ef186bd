"""The broker's disk: the journal of durable events in SQLite, and what guards it."""
