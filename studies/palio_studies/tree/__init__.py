"""The matching tree of gryphon, in full.

To study and compare: brokers, clients and Spark use `Index`.
"""
