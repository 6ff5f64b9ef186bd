"""Sets of brokers as rows of bits: the broker at place `i` is bit `i % 64` of word `i // 64`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from palio.errors import InvalidInput
from palio.model.limits import check_limit

Words: TypeAlias = npt.NDArray[np.uint64]
"""Sets of brokers, one a row."""

Masks: TypeAlias = npt.NDArray[np.bool_]
"""Sets of brokers, one a row, with a column for each broker."""

MAX_BROKERS: Final = 4_096
"""Brokers of one plan: a set of them takes 512 bytes."""


def words_in(brokers: int) -> int:
    """Return the words that a set takes.

    >>> words_in(64), words_in(65)
    (1, 2)
    """
    return max(1, -(-brokers // 64))


def numbered(brokers: Iterable[str]) -> dict[str, int]:
    """Number brokers, by name.

    >>> numbered(["b1", "b2"])
    {'b1': 0, 'b2': 1}
    """
    places: dict[str, int] = {}
    for name in brokers:
        if name in places:
            raise InvalidInput(f"broker {name!r:.80} is named twice")
        places[name] = len(places)
    if not places:
        raise InvalidInput("a plan is for one broker at least")
    check_limit("the number of brokers of a plan", "MAX_BROKERS", MAX_BROKERS, len(places))
    return places


def words_of(masks: Masks) -> Words:
    """Pack sets from a column for each broker.

    >>> words_of(np.array([[True, False, True]])).tolist()
    [[5]]
    """
    rows, brokers = masks.shape
    octets = np.packbits(masks, axis=1, bitorder="little")
    padded = np.zeros((rows, 8 * words_in(brokers)), np.uint8)
    padded[:, : octets.shape[1]] = octets
    return padded.view("<u8").astype(np.uint64, copy=False)


def masks_of(sets: Words, brokers: int) -> Masks:
    """Unpack sets into a column for each broker.

    >>> masks_of(np.array([[5]], np.uint64), 3).tolist()
    [[True, False, True]]
    """
    octets = np.ascontiguousarray(sets, "<u8").view(np.uint8)
    return np.unpackbits(octets, axis=1, bitorder="little", count=brokers).view(np.bool_)


def rows_of(sets: Sequence[Iterable[str]], places: dict[str, int]) -> Words:
    """Pack sets from names.

    >>> rows_of([["b1", "b3"]], numbered(["b1", "b2", "b3"])).tolist()
    [[5]]
    """
    masks = np.zeros((len(sets), len(places)), np.bool_)
    for row, names in enumerate(sets):
        for name in names:
            place = places.get(name)
            if place is None:
                raise InvalidInput(f"{name!r:.80} is no broker of this plan")
            masks[row, place] = True
    return words_of(masks)


def named(row: Words, brokers: Sequence[str]) -> tuple[str, ...]:
    """List the names in one set, in the order of the brokers.

    >>> named(np.array([5], np.uint64), ["b1", "b2", "b3"])
    ('b1', 'b3')
    """
    mask = masks_of(row.reshape(1, -1), len(brokers))[0]
    return tuple(brokers[place] for place in np.flatnonzero(mask).tolist())


def sizes_of(sets: Words) -> npt.NDArray[np.int64]:
    """Count the brokers in each set.

    >>> sizes_of(np.array([[5], [0]], np.uint64)).tolist()
    [2, 0]
    """
    sizes: npt.NDArray[np.int64] = np.bitwise_count(sets).sum(axis=1, dtype=np.int64)
    return sizes


def distinct(
    sets: Words, weights: npt.NDArray[np.float64]
) -> tuple[Words, npt.NDArray[np.float64]]:
    """Merge equal sets and sum up their weights; in the order of their bits.

    >>> sets, weights = distinct(np.array([[5], [1], [5]], np.uint64), np.ones(3))
    >>> sets.tolist(), weights.tolist()
    ([[1], [5]], [1.0, 2.0])
    """
    if not len(sets):
        return sets, weights
    order = np.lexsort(sets.T)
    ordered = sets[order]
    begins = np.ones(len(sets), np.bool_)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.flatnonzero(begins)
    return ordered[first], np.add.reduceat(weights[order], first)


def united(sets: Words, into: npt.NDArray[np.int64], count: int) -> Words:
    """Unite sets: result `i` is the union of the sets with `into` equal to `i`.

    >>> united(np.array([[1], [2], [4]], np.uint64), np.array([1, 0, 1]), 3).tolist()
    [[2], [5], [0]]
    """
    found = np.zeros((count, sets.shape[1]), np.uint64)
    if len(sets):
        order = np.argsort(into, kind="stable")
        names, first = np.unique(into[order], return_index=True)
        found[names] = np.bitwise_or.reduceat(sets[order], first, axis=0)
    return found
