"""Palio: content-based publish/subscribe for Python and Spark.

People state what they want to hear as a filter over typed attributes, others publish, and Palio
delivers exactly what matches.

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
    from palio.client.answers import (
        AddedPeer,
        CatalogueEntry,
        PeerOfBroker,
        Remains,
        RemovedPeer,
        Topology,
        Trace,
    )
    from palio.client.blocking import SyncBus, SyncClient, SyncOffer, SyncSubscription
    from palio.client.bus import Bus
    from palio.client.connection import Client, Offer, connect
    from palio.client.events import Event, Gap, Late, Published
    from palio.client.subscriber import Parameter, Subscriber, on
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

_HOMES: Final = {
    "AddedPeer": "palio.client.answers",
    "Advertisement": "palio.model.advertisements",
    "Bus": "palio.client.bus",
    "CatalogueEntry": "palio.client.answers",
    "Client": "palio.client.connection",
    "Event": "palio.client.events",
    "Gap": "palio.client.events",
    "Late": "palio.client.events",
    "Offer": "palio.client.connection",
    "Parameter": "palio.client.subscriber",
    "PeerOfBroker": "palio.client.answers",
    "Published": "palio.client.events",
    "Remains": "palio.client.answers",
    "RemovedPeer": "palio.client.answers",
    "Subscriber": "palio.client.subscriber",
    "Subscription": "palio.client.subscription",
    "SyncBus": "palio.client.blocking",
    "SyncClient": "palio.client.blocking",
    "SyncOffer": "palio.client.blocking",
    "SyncSubscription": "palio.client.blocking",
    "Topology": "palio.client.answers",
    "Trace": "palio.client.answers",
    "connect": "palio.client.connection",
    "on": "palio.client.subscriber",
    "client": "palio.client",
    "language": "palio.language",
    "matching": "palio.matching",
    "model": "palio.model",
    "spark": "palio.spark",
    "testing": "palio.testing",
    "Explanation": "palio.model.explaining",
    "Filter": "palio.model.filters",
    "Parcel": "palio.model.parcels",
    "Pattern": "palio.model.patterns",
    "attr": "palio.language.fluent",
    "covers": "palio.model.relations",
    "covers_advertisement": "palio.model.relations",
    "errors": "palio.errors",
    "merge": "palio.model.merging",
    "overlaps": "palio.model.relations",
    "param": "palio.language.fluent",
    "parse": "palio.language.parsing",
    "parse_advertisement": "palio.language.parsing",
    "parse_filter": "palio.language.parsing",
    "parse_pattern": "palio.language.parsing",
}

__all__ = [
    "AddedPeer",
    "Advertisement",
    "Bus",
    "CatalogueEntry",
    "Client",
    "Event",
    "Explanation",
    "Filter",
    "Gap",
    "Late",
    "Offer",
    "Parameter",
    "Parcel",
    "Pattern",
    "PeerOfBroker",
    "Published",
    "Remains",
    "RemovedPeer",
    "Subscriber",
    "Subscription",
    "SyncBus",
    "SyncClient",
    "SyncOffer",
    "SyncSubscription",
    "Topology",
    "Trace",
    "attr",
    "client",
    "connect",
    "covers",
    "covers_advertisement",
    "errors",
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
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'palio' has no attribute {name!r}")
    module = import_module(home)
    value = module if home == f"palio.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
