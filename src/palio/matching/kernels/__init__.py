"""Compiled functions: `records` is what they share with engines, `registry` gives them to engines,
`jit` wraps numba, `cache` keeps the compiled code on disk; `fallback` has the plans in plain
Python.
"""
