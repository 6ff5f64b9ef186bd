"""The shell round a node: sockets, disk, clock, configuration, fronts."""
