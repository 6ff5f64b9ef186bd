"""The client: buses, connections and subscriptions, asynchronous and synchronous."""
