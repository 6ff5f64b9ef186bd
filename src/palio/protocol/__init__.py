"""What both ends of a connection share: messages, frames, streams, limits; pure, without I/O."""
