"""Messages, frames, streams and limits: what both ends of a connection share; pure, without I/O."""
