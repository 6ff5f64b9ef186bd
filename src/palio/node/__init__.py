"""One broker as a state machine round a router: sessions, custody, timers, authority."""
