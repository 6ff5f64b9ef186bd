"""What a plan in use may be at the most: all brokers of a network keep it."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_PACKED_CHARS", "MAX_UNPACKED_BYTES"]

MAX_UNPACKED_BYTES: Final = 512 << 10
"""A plan as a document: to read the largest holds a broker for less than 50 ms."""

MAX_PACKED_CHARS: Final = 704 << 10
"""The same as a text: what cannot be compressed is a third longer."""
