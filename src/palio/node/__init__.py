"""One broker as a state machine round a router: sessions, durable events, timers, authority."""
