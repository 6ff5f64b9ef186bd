"""`Pieces`: reassembly of fragmented datagrams, within bounds of memory and time.

All fragments were authenticated. An incomplete datagram expires when it is too old. Incomplete
datagrams are also evicted, the oldest first, when one sender or all together exceed their memory.
"""

from __future__ import annotations

from typing import Final

from palio.protocol.limits import (
    MAX_DATAGRAM_BYTES,
    PIECES_BYTES,
    PIECES_OF_ONE_BYTES,
    PIECES_S,
)

_PIECE_BYTES: Final = 200
"""The approximate overhead of a fragment, so that the limit in bytes bounds their number, too."""

_Key = tuple[str, int]
"""A sender, and the number of the first fragment."""


class _Begun:
    """An incomplete datagram."""

    __slots__ = ("at", "of", "pieces", "size")

    def __init__(self, at: float, of: int) -> None:
        self.at = at
        self.of = of
        self.pieces: dict[int, bytes] = {}
        self.size = 0

    @property
    def nbytes(self) -> int:
        """The approximate memory that it takes, in bytes."""
        return self.size + _PIECE_BYTES * len(self.pieces)


class Pieces:
    """Fragments of datagrams, by sender and the number of the first fragment.

    >>> pieces = Pieces()
    >>> pieces.add("b1", 7, 1, 2, b"world", now=0.0)
    >>> pieces.add("b1", 7, 0, 2, b"hello ", now=0.1)
    b'hello world'
    """

    def __init__(self) -> None:
        self._begun: dict[_Key, _Begun] = {}
        self._by_sender: dict[str, dict[_Key, None]] = {}
        self._bytes: dict[str, int] = {}
        self.nbytes = 0
        """The approximate memory of all of them."""
        self.given_up = 0
        """The number of datagrams that expired or were evicted while incomplete."""

    def __len__(self) -> int:
        return len(self._begun)

    def add(
        self, sender: str, first: int, place: int, of: int, data: bytes, *, now: float
    ) -> bytes | None:
        """Add a fragment, and return the datagram if it is now complete.

        Raise `ValueError` if the fragment contradicts another or the datagram exceeds its limit.
        """
        self._give_up_old(now)
        key = sender, first
        begun = self._begun.get(key)
        if begun is None:
            begun = self._begun[key] = _Begun(now, of)
            self._by_sender.setdefault(sender, {})[key] = None
        if begun.of != of or place >= of or place in begun.pieces:
            self._drop(key)
            raise ValueError(f"piece {place} of {of}, which contradicts another")
        begun.pieces[place] = data
        self._account(sender, len(data) + _PIECE_BYTES)
        begun.size += len(data)
        if begun.size > MAX_DATAGRAM_BYTES:
            self._drop(key)
            raise ValueError("more than a datagram has (MAX_DATAGRAM_BYTES)")
        if len(begun.pieces) == of:
            self._drop(key)
            return b"".join(begun.pieces[place] for place in range(of))
        self._make_room(sender)
        return None

    def give_up(self, sender: str) -> None:
        """Discard all incomplete datagrams of a sender, which has restarted."""
        for key in list(self._by_sender.get(sender, ())):
            self._give_up(key)

    def _give_up_old(self, now: float) -> None:
        while self._begun:
            key, oldest = next(iter(self._begun.items()))
            if now - oldest.at < PIECES_S:
                return
            self._give_up(key)

    def _make_room(self, sender: str) -> None:
        while self._bytes.get(sender, 0) > PIECES_OF_ONE_BYTES:
            self._give_up(next(iter(self._by_sender[sender])))
        while self.nbytes > PIECES_BYTES:
            self._give_up(next(iter(self._begun)))

    def _give_up(self, key: _Key) -> None:
        self.given_up += 1
        self._drop(key)

    def _drop(self, key: _Key) -> None:
        sender = key[0]
        begun = self._begun.pop(key)
        self._account(sender, -begun.nbytes)
        keys = self._by_sender[sender]
        del keys[key]
        if not keys:
            del self._by_sender[sender], self._bytes[sender]

    def _account(self, sender: str, nbytes: int) -> None:
        self.nbytes += nbytes
        self._bytes[sender] = self._bytes.get(sender, 0) + nbytes
