"""`palio demo`: a market on a bus of this process, on three brokers, and again on Spark."""
