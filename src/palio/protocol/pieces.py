"""`Pieces`: datagrams of which some pieces have come, within bounds of memory and time.

What is kept was authenticated. A datagram that lacks a piece is given up when it is too old, or
when its sender, or all senders together, take too much memory: the oldest goes first.
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
"""About what a piece takes beside its bytes: it bounds how many there are."""

_Key = tuple[str, int]
"""A sender, and its number of the first piece."""


class _Begun:
    """A datagram of which pieces are still to come."""

    __slots__ = ("at", "of", "pieces", "size")

    def __init__(self, at: float, of: int) -> None:
        self.at = at
        self.of = of
        self.pieces: dict[int, bytes] = {}
        self.size = 0

    @property
    def nbytes(self) -> int:
        """About what it takes."""
        return self.size + _PIECE_BYTES * len(self.pieces)


class Pieces:
    """Pieces of datagrams, by sender and the number of the first.

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
        """About what all of them take."""
        self.given_up = 0
        """Datagrams that some pieces of never came, or came too late."""

    def __len__(self) -> int:
        return len(self._begun)

    def add(
        self, sender: str, first: int, place: int, of: int, data: bytes, *, now: float
    ) -> bytes | None:
        """The datagram, if this was the last piece that it lacked.

        `ValueError` for a piece that contradicts another, or the limit of a datagram.
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
        """Nothing more comes of what a sender has begun: it has restarted."""
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
