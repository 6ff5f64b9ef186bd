"""The proxy hierarchy (proxy IV).

To study and compare, in simulations: brokers do not serve it yet.
"""
