"""The data pipeline: Palio's filters over Spark's DataFrames (docs/reference/spark.md).

>>> import palio.spark
>>> spark = palio.spark.session()  # doctest: +SKIP
>>> palio.spark.match(events, subscriptions, columns=["id"]).show()  # doctest: +SKIP

Names load their modules when first used, and no module of this package imports pyspark before it
has to: what runs in Spark's Python workers, and what reads and compiles subscriptions, never does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from palio.spark.grouping import plan_groups
    from palio.spark.matches import match, rejects
    from palio.spark.reading import Catalogue
    from palio.spark.sequencing import sequences
    from palio.spark.sessions import MissingDependency, session, stop
    from palio.spark.sets import SubscriptionSet, subscriptions
    from palio.spark.source import register

__all__ = [
    "Catalogue",
    "MissingDependency",
    "SubscriptionSet",
    "match",
    "plan_groups",
    "register",
    "rejects",
    "sequences",
    "session",
    "stop",
    "subscriptions",
]

_HOMES: Final = {
    "Catalogue": "palio.spark.reading",
    "MissingDependency": "palio.spark.sessions",
    "SubscriptionSet": "palio.spark.sets",
    "match": "palio.spark.matches",
    "plan_groups": "palio.spark.grouping",
    "register": "palio.spark.source",
    "rejects": "palio.spark.matches",
    "sequences": "palio.spark.sequencing",
    "session": "palio.spark.sessions",
    "stop": "palio.spark.sessions",
    "subscriptions": "palio.spark.sets",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
