"""The Arrow Flight front: batches in and out over gRPC."""
