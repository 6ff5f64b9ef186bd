"""Datagrams to and from groups of brokers: sockets, addresses, interfaces."""
