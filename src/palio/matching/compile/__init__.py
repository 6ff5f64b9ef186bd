"""From filters to the flat rows that kernels read.

`terms`, then `ranges`, then `rows`; `merge` joins sets of rows.
"""
