"""Routers: a broker's requests to its neighbours, and the routes of events. One file an algorithm.

Start with `protocol` (the `Router` protocol and its nouns), `messages` (what travels),
`forwarding` (the one table behind the algorithms) and then any algorithm, for instance `acyclic`.
"""
