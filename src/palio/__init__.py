"""Palio: content-based publish/subscribe for Python and Spark.

Subscribers state what they want to receive as a filter over typed attributes, others publish, and
Palio delivers exactly what matches.

>>> import palio
>>> palio.parse("symbol = 'IBM' AND price < :limit").matches(
...     {"symbol": "IBM", "price": 9}, {"limit": 10}
... )
True

Names load their modules when first used, so that `import palio` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from palio import client, errors, language, matching, model, spark, testing
    from palio.client.admin import Admin
    from palio.client.answers import (
        AddedPeer,
        CatalogueEntry,
        DrainStatus,
        PeerInfo,
        RemovedPeer,
        Topology,
        Trace,
    )
    from palio.client.blocking import (
        SyncAdmin,
        SyncAdvertisementHandle,
        SyncBus,
        SyncClient,
        SyncSubscription,
    )
    from palio.client.bus import Bus
    from palio.client.connection import AdvertisementHandle, Client, connect
    from palio.client.events import Event, Gap, LateGap, PublishReceipt
    from palio.client.roaming import ConnectionState
    from palio.client.subscriber import Parameter, Subscriber, event, on
    from palio.client.subscription import Subscription
    from palio.language.fluent import attr, param
    from palio.language.parsing import parse, parse_advertisement, parse_filter, parse_pattern
    from palio.model.advertisements import Advertisement
    from palio.model.explaining import Explanation
    from palio.model.filters import Filter
    from palio.model.merging import merge
    from palio.model.parcels import Parcel
    from palio.model.patterns import Pattern
    from palio.model.relations import covers, covers_advertisement, overlaps

__version__ = "0.1.0"

_NAMES: Final = {
    "client.answers": (
        *("AddedPeer", "CatalogueEntry", "PeerInfo", "DrainStatus", "RemovedPeer"),
        *("Topology", "Trace"),
    ),
    "client.admin": ("Admin",),
    "client.blocking": (
        *("SyncAdmin", "SyncAdvertisementHandle", "SyncBus", "SyncClient", "SyncSubscription"),
    ),
    "client.bus": ("Bus",),
    "client.connection": ("Client", "AdvertisementHandle", "connect"),
    "client.events": ("Event", "Gap", "LateGap", "PublishReceipt"),
    "client.roaming": ("ConnectionState",),
    "client.subscriber": ("Parameter", "Subscriber", "event", "on"),
    "client.subscription": ("Subscription",),
    "language.fluent": ("attr", "param"),
    "language.parsing": ("parse", "parse_advertisement", "parse_filter", "parse_pattern"),
    "model.advertisements": ("Advertisement",),
    "model.explaining": ("Explanation",),
    "model.filters": ("Filter",),
    "model.merging": ("merge",),
    "model.parcels": ("Parcel",),
    "model.patterns": ("Pattern",),
    "model.relations": ("covers", "covers_advertisement", "overlaps"),
}
"""The public names of each module. Other public names are modules themselves."""

_HOMES: Final = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "AddedPeer",
    "Admin",
    "Advertisement",
    "AdvertisementHandle",
    "Bus",
    "CatalogueEntry",
    "Client",
    "ConnectionState",
    "DrainStatus",
    "Event",
    "Explanation",
    "Filter",
    "Gap",
    "LateGap",
    "Parameter",
    "Parcel",
    "Pattern",
    "PeerInfo",
    "PublishReceipt",
    "RemovedPeer",
    "Subscriber",
    "Subscription",
    "SyncAdmin",
    "SyncAdvertisementHandle",
    "SyncBus",
    "SyncClient",
    "SyncSubscription",
    "Topology",
    "Trace",
    "attr",
    "client",
    "connect",
    "covers",
    "covers_advertisement",
    "errors",
    "event",
    "language",
    "matching",
    "merge",
    "model",
    "on",
    "overlaps",
    "param",
    "parse",
    "parse_advertisement",
    "parse_filter",
    "parse_pattern",
    "spark",
    "testing",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'palio' has no attribute {name!r}")
    module = import_module(f"palio.{_HOMES.get(name, name)}")
    value = getattr(module, name) if name in _HOMES else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
