"""Patterns assembled by brokers (siena 5.4).

To study and compare: clients assemble patterns themselves.
"""
