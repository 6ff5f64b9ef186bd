"""The shell round a node: sockets, disk, clock, configuration, fronts (DESIGN 7 and 9)."""
