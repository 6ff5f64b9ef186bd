"""`palio demo`: a market on three brokers, one of which is killed, and an audit at the end."""
