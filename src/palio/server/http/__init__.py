"""The HTTP front: publishing, subscriptions and the delivery of their events."""
