"""Check and convert arguments that several methods of the client API share.

They are filters, values of parameters and options: of `subscribe`, `update`, `replace` and
`publish`. They are checked at the call, where the caller can see its mistake.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypedDict

from palio.client.events import Gap
from palio.errors import InvalidBinding, InvalidFilter, InvalidInput
from palio.language.parsing import parse
from palio.model.binding import usable
from palio.model.filters import Filter
from palio.model.parameters import check_given
from palio.model.patterns import Pattern
from palio.model.values import Bindings
from palio.model.values import check_name as check_attribute
from palio.protocol.limits import MAX_NUMBER, check_seconds, check_since
from palio.protocol.names import check_name

_NO_COLLECTIONS: Final = (str, bytes, bytearray, memoryview)


class BusOptions(TypedDict, total=False):
    """The options of `Bus.subscribe`; its docstring explains them."""

    queue_size: int
    max_events: int | None
    on_gap: Callable[[Gap], None] | None
    replace_covered: bool


class DurableOptions(TypedDict, total=False):
    """The options of a durable subscription; the docstring of `Client.subscribe` explains them."""

    durable_name: str
    retention: float
    ack_timeout: float
    max_attempts: int
    group: bool
    order_by: str
    since: datetime | None


class ClientOptions(BusOptions, DurableOptions, total=False):
    """The options of `Client.subscribe`; its docstring explains them."""

    ack: Literal["auto", "manual"]
    latest_by: str
    reorder_timeout: float | None
    offer_timeout: float | None
    match_at: Literal["client", "brokers"]


class DurablePolicy(NamedTuple):
    """The options of a durable subscription, checked; without a name it is not durable."""

    name: str = ""
    retention_s: float = 0.0
    ack_timeout_s: float = 0.0
    max_attempts: int = 0
    is_group: bool = False
    order_by: str = ""
    since_us: int = 0


NOT_DURABLE: Final = DurablePolicy()

_NO_PARAMS: Final[dict[str, Any]] = {}
"""Shared by all subscriptions without parameters, to save memory."""


def as_filter(filter: str | Filter | Pattern, taker: str = "a subscription") -> Filter | Pattern:
    """Parse the text of a filter or pattern; return a parsed one as it is."""
    if isinstance(filter, str):
        return parse(filter)
    if isinstance(filter, Filter | Pattern):
        return filter
    raise InvalidFilter(f"{taker} takes a text, a Filter or a Pattern, not {type(filter).__name__}")


def given_params(params: Mapping[str, Any] | None) -> Bindings:
    """Return the values of parameters given as a mapping, or none.

    >>> given_params({"limit": 10}), given_params(None)
    ({'limit': 10}, {})
    """
    return merged_values(params, _NO_PARAMS)


def merged_values(values: Bindings | None, named: Bindings) -> Bindings:
    """Merge values of parameters given in a mapping with those given by name; refuse duplicates.

    >>> merged_values({"values": 1}, {"limit": 10})
    {'values': 1, 'limit': 10}
    """
    if values is None:
        return named
    if not isinstance(values, Mapping):
        raise InvalidInput(
            f"values of parameters are a mapping, such as {{'values': {values!r:.40}}}, "
            f"not {type(values).__name__}"
        )
    duplicates = sorted(values.keys() & named.keys())
    if duplicates:
        raise InvalidBinding(
            f"parameter :{duplicates[0]} is given by name and in the mapping; give it once",
            name=duplicates[0],
        )
    return {**values, **named}


def freeze_params(values: Bindings) -> dict[str, Any]:
    """Copy values of parameters into immutable ones that can be sent to a broker.

    Scalars of numpy, enumerations and other subclasses become plain values; collections become
    tuples of these. So the application cannot change the values of a subscription by accident.
    """
    return {name: _plain(name, value) for name, value in values.items()} if values else _NO_PARAMS


def _plain(name: str, value: object) -> Any:
    """Validate and convert a scalar here, at the call, and not only when it is sent.

    None and unsupported collections pass: the filter refuses them with a better error message,
    which names the type that it expects.
    """
    if isinstance(value, tuple | list | set | frozenset):
        return tuple([_plain(name, item) for item in value])
    is_collection = isinstance(value, Iterable) and not isinstance(value, _NO_COLLECTIONS)
    return value if value is None or is_collection else usable(name, value)


def check_values(filter: Filter | Pattern, values: Bindings) -> None:
    """Refuse unknown parameters, missing ones, and values that the filter cannot use."""
    if not values and not filter.variables:
        return
    unknown = sorted(set(values) - filter.variables)
    if unknown:
        listed = ", ".join(f":{name}" for name in sorted(filter.variables)) or "none"
        raise InvalidBinding(
            f"the filter has no parameter :{unknown[0]}; it has {listed}", name=unknown[0]
        )
    check_given(filter, values)


def check_stored_at(durable: object) -> None:
    """Validate `publish(durable=)`.

    >>> check_stored_at(True), check_stored_at("home")
    (None, None)
    """
    if durable is not True and durable is not False and durable != "home":
        raise InvalidInput(
            f'events are published with durable=True or durable="home", not {durable!r:.40}; '
            "a name is for subscribe(durable_name=)"
        )


def check_max_events(count: object) -> None:
    """Validate `max_events=`.

    >>> check_max_events(None), check_max_events(1)
    (None, None)
    """
    if count is None or (isinstance(count, int) and not isinstance(count, bool) and count >= 1):
        return
    raise InvalidInput(
        f"max_events is the number of events to receive, at least 1, not {count!r:.40}"
    )


def check_durable(
    durable_name: str = "",
    retention: float = 0.0,
    ack_timeout: float = 0.0,
    max_attempts: int = 0,
    group: bool = False,  # callers give options by name
    order_by: str = "",
    since: datetime | None = None,
) -> DurablePolicy:
    """Validate the options of a durable subscription, which need its name.

    >>> check_durable("orders", group=True, order_by="customer").order_by
    'customer'
    """
    checked = DurablePolicy(
        durable_name,
        check_seconds(retention, "retention"),
        check_seconds(ack_timeout, "ack_timeout"),
        _check_attempts(max_attempts),
        bool(group),
        order_by,
        check_since(since),
    )
    if durable_name != "":
        check_name(durable_name, "a durable subscription")
    elif checked != NOT_DURABLE:
        names = DurableOptions.__annotations__
        option = next(name for name, value in zip(names, checked, strict=True) if value)
        raise InvalidInput(f"{option}= is for durable subscriptions; give a durable_name=")
    if order_by != "":
        check_attribute(order_by, InvalidInput)
        if not group:
            raise InvalidInput("order_by= orders the events of a group; give group=True")
    return checked


def _check_attempts(count: object) -> int:
    """Return `max_attempts=`; 0 means no limit."""
    if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MAX_NUMBER:
        return count
    raise InvalidInput(f"max_attempts is a whole number, 0 for no limit, not {count!r:.40}")


def check_on_gap(on_gap: object) -> None:
    """Validate `on_gap=`; a coroutine function would never be awaited."""
    if on_gap is None:
        return
    if not callable(on_gap):
        raise InvalidInput(f"on_gap is called with a Gap; {on_gap!r:.40} cannot be called")
    if inspect.iscoroutinefunction(on_gap):
        raise InvalidInput("on_gap is an ordinary function; an `async def` would never run")


def check_match_at(
    place: object, filter: Filter | Pattern, reorder_timeout: float | None, durable_name: str
) -> bool:
    """Validate `match_at=`; return True if brokers are to assemble the pattern.

    >>> check_match_at("brokers", parse("a = 1 THEN b = 1"), None, "")
    True
    """
    if place not in ("client", "brokers"):
        raise InvalidInput(f"match_at is 'client' or 'brokers', not {place!r:.40}")
    if place == "client":
        return False
    if not isinstance(filter, Pattern):
        raise InvalidInput(
            f"match_at= is for patterns, such as a THEN b; {str(filter)!r:.80} is one filter"
        )
    if reorder_timeout is not None:
        raise InvalidInput(
            "reorder_timeout= is for patterns that the client assembles; leave it out"
        )
    if durable_name:
        raise InvalidInput(
            "brokers keep no pattern for a disconnected client; leave durable_name= out"
        )
    return True


def check_offer_timeout(seconds: float | None, filter: object, durable_name: str) -> None:
    """Validate `offer_timeout=`, which is for filters that are not durable.

    >>> check_offer_timeout(None, "any filter", "")
    """
    if seconds is None:
        return
    check_seconds(seconds, "offer_timeout")
    if durable_name or not isinstance(filter, Filter):
        raise InvalidInput("offer_timeout= is for a filter that is not durable")
