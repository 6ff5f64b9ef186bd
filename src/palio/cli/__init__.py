"""The `palio` command: thin commands over the other packages, each loading what it needs when it
runs.
"""
