"""Build layers from templates of rows, or from other layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from palio.matching.compile.merge import merged
from palio.matching.compile.ranges import RowTemplate, compile_templates
from palio.matching.compile.terms import Guard
from palio.matching.compiled import CompiledLayer
from palio.matching.guarded import GuardedLayer
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import Longs

FAN_OUT: Final = 4
"""This many layers of about one size are joined: each change is compiled again a few times, and
there are a few layers of each size."""


def layer_of(
    templates: Sequence[RowTemplate],
    destinations: tuple[Longs, Longs] | None,
    kernels: Kernels | None,
    guards: Sequence[Guard] | None = None,
) -> CompiledLayer | None:
    """A layer of some templates; None if they have no rows.

    `destinations` are as in `CompiledLayer.of`; guards have their own.
    """
    rows = compile_templates(templates)
    if not rows.rows:
        return None
    if guards is not None:
        return GuardedLayer.guarding(rows, guards, kernels)
    return CompiledLayer.of(rows, destinations, kernels)


def joined(layers: Sequence[CompiledLayer], kernels: Kernels | None) -> CompiledLayer | None:
    """One layer of the rows of several without tombstones; all have guards, or none has."""
    kept, listed, keys, destinations = [], [], [], []
    guards: list[Guard] = []
    for layer in layers:
        segment, rows = layer.segment, layer.segment.compiled
        bits = np.unpackbits(layer.tombstones.view(np.uint8), bitorder="little").view(np.bool_)
        kept.append(~bits[segment.row_ranks])
        if isinstance(layer, GuardedLayer):
            rows = replace(rows, row_owners=rows.row_owners + len(guards))
            guards += layer.guards
        listed.append(rows)
        left = ~bits[: len(segment.keys)]
        keys.append(layer.keys[left])
        destinations.append(layer.destinations.by_rank[left])
    whole = merged(listed, kept)
    if not whole.rows:
        return None
    if layers[0].is_guarded:
        return GuardedLayer.guarding(whole, guards, kernels)
    every = np.concatenate(keys)
    order = np.argsort(every)
    return CompiledLayer.of(whole, (every[order], np.concatenate(destinations)[order]), kernels)


def merged_layers(
    layers: Iterable[CompiledLayer], kernels: Kernels | None
) -> tuple[CompiledLayer, ...]:
    """One layer without guards and one with them, where there are any."""
    listed = list(layers)
    sorts = [[layer for layer in listed if layer.is_guarded is sort] for sort in (False, True)]
    merged = [joined(sort, kernels) for sort in sorts if sort]
    return tuple(layer for layer in merged if layer is not None)


def tiered(
    layers: tuple[CompiledLayer, ...], first_free: int, most: float, kernels: Kernels | None
) -> tuple[CompiledLayer, ...]:
    """Layers from `first_free` on joined, where several are of about one size and all of them
    together no larger than `most`.
    """
    listed = list(layers)
    for guarded in (False, True):
        while True:
            tail = [layer for layer in listed[first_free:] if layer.is_guarded is guarded]
            sizes = [layer.rows for layer in tail]
            alike = next(
                (at for at, size in enumerate(reversed(sizes)) if size >= FAN_OUT * sizes[-1]),
                len(sizes),
            )
            small = tail[len(tail) - alike :]
            if alike < FAN_OUT or sum(map(size_of, small)) > most:
                break
            listed = [layer for layer in listed if all(layer is not other for other in small)]
            whole = joined(small, kernels)
            if whole is not None:
                listed.append(whole)
    return tuple(listed)


def size_of(layer: CompiledLayer) -> int:
    """The cost of joining a layer to others: rows, predicates, and intervals."""
    rows = layer.segment.compiled
    return rows.rows + len(rows.row_predicates) + len(rows.lows)
