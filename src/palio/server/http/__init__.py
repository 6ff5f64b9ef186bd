"""The HTTP front: publishing, subscriptions and the ways in which their events go out."""
