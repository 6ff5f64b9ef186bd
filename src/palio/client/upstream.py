"""`Upstream`: where the events of a place come from, and who is told what is wanted there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from palio.model.filters import Filter
from palio.model.patterns import Pattern
from palio.model.values import Bindings

__all__ = ["Announced", "LocalUpstream", "Told", "Upstream"]

Told: TypeAlias = asyncio.Future[Any] | None
"""The answer to a change that an upstream was told of; None where nobody has to be told."""


class Announced(Protocol):
    """What an upstream has to know of a subscription."""

    number: int
    what: Filter | Pattern
    values: dict[str, Any]
    durable: str
    lease_s: float

    @property
    def by_brokers(self) -> bool:
        """Whether it is a pattern that brokers assemble."""


class Upstream(Protocol):
    """Is told of changes that are in force here already."""

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests; else `check_ready` says why not."""

    @property
    def is_listening(self) -> bool:
        """Whether events can come just now."""

    def check_ready(self) -> None:
        """Refuse what is not connected."""

    def check_usable(self) -> None:
        """Refuse what can never be connected again."""

    def subscribe(self, wanted: Announced, text: str, /) -> Told:
        """A subscription is new. Its filter was read from a text, or that is empty."""

    def update(self, wanted: Announced, changed: Bindings, /) -> Told:
        """Some parameters have other values."""

    def replace(self, wanted: Announced, /) -> Told:
        """Another filter is in the place of its own."""

    def withdraw(self, wanted: Announced, /, *, forget: bool) -> Told:
        """It hears nothing more. `forget`: nor is anything to be kept for its name."""

    async def cancel(self, what: Filter | Pattern, /, *, forget: bool) -> int:
        """End what others who act under the same identity hear and this covers; how many."""

    def acknowledge(self, number: int, entry: int, held: int = 0, bookmark: bytes = b"", /) -> None:
        """A durable subscription has dealt with everything up to an entry (see `Acknowledge`)."""

    async def settled(self, patience: float, /) -> None:
        """Return when all subscriptions are in force wherever events are published."""


class LocalUpstream:
    """The upstream of a bus, where whatever is in force here is so everywhere."""

    is_ready = True
    is_listening = True

    def check_ready(self) -> None:
        """See `Upstream`."""

    def check_usable(self) -> None:
        """See `Upstream`."""

    def subscribe(self, _wanted: Announced, _text: str) -> Told:
        """See `Upstream`."""
        return None

    def update(self, _wanted: Announced, _changed: Mapping[str, Any]) -> Told:
        """See `Upstream`."""
        return None

    def replace(self, _wanted: Announced) -> Told:
        """See `Upstream`."""
        return None

    def withdraw(self, _wanted: Announced, *, forget: bool) -> Told:
        """See `Upstream`."""
        del forget
        return None

    async def cancel(self, _what: Filter | Pattern, *, forget: bool) -> int:
        """See `Upstream`: a bus is by itself."""
        del forget
        return 0

    def acknowledge(
        self, _number: int, _entry: int, _held: int = 0, _bookmark: bytes = b""
    ) -> None:
        """See `Upstream`."""
        raise AssertionError("nothing on a bus is durable")

    async def settled(self, _patience: float) -> None:
        """See `Upstream`."""
