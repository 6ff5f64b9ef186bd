"""Routers: what a broker tells its neighbours and where events go. One file an algorithm, no I/O.

Start with `protocol` (the `Router` protocol and its nouns), `messages` (what travels),
`forwarding` (the one table behind the algorithms) and then any algorithm, for instance `acyclic`.
"""
