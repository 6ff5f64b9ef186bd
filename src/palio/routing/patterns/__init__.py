"""Patterns assembled by brokers (siena 5.4).

For studies and comparison: clients assemble patterns themselves.
"""
