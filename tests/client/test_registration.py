from __future__ import annotations

import asyncio
from typing import Any

import pytest

import palio
from palio.client.delivery_queue import DeliveryQueue
from palio.client.dispatcher import Dispatcher
from palio.client.registration import Registration, SubscriptionOptions
from palio.client.subscribing import DurablePolicy
from palio.errors import InvalidBinding, InvalidFilter, LimitExceeded, NotPermitted
from palio.matching import admission
from palio.matching.index import Index
from palio.matching.protocol import Matcher
from palio.matching.reference import Reference
from palio.model.filters import Filter
from palio.model.values import NO_VALUES, Bindings
from tests.client.recording import Recording


def durable(name: str, retention_s: float = 0.0) -> SubscriptionOptions:
    return SubscriptionOptions(durable=DurablePolicy(name, retention_s))


def registered(
    text: str,
    options: SubscriptionOptions | None = None,
    *,
    matcher: Matcher | None = None,
    **values: Any,
) -> tuple[Recording, Dispatcher, Registration]:
    """A subscription of a place of its own."""
    upstream = Recording()
    dispatcher = Dispatcher(upstream, Reference() if matcher is None else matcher)
    what = palio.parse(text)
    registration = dispatcher.register(
        what, values, DeliveryQueue(9), options or SubscriptionOptions()
    )
    return upstream, dispatcher, registration


def test_a_change_is_in_force_here_and_told_upstream() -> None:
    upstream, _, heard = registered("x > :low AND x < :high", low=0, high=9)
    assert heard.concerns({"x": 3})
    assert heard.update(heard.changed({"low": 5})) is None
    assert not heard.concerns({"x": 3})
    assert heard.replace(palio.parse("y = 1"), {}) is None
    assert heard.concerns({"y": 1})
    assert heard.announce() is heard.leave(delete=True) is None
    assert upstream.sent == [
        ("update", 0, {"low": 5}),
        ("replace", 0, "y = 1", {}),
        ("subscribe", 0, "y = 1", {}),
        ("unsubscribe", 0, True),
    ]
    assert heard.version == 2


async def test_the_answer_of_the_upstream_is_what_a_change_returns() -> None:
    upstream, _, heard = registered("x > :low", low=0)
    upstream.answer = asyncio.get_running_loop().create_future()
    assert heard.announce() is upstream.answer
    assert heard.update(heard.changed({"low": 1})) is upstream.answer


def test_the_upstream_is_given_the_text_that_a_filter_was_read_from() -> None:
    upstream, _, heard = registered("y = 1 AND x > 1")
    heard.announce("y = 1 AND  x > 1")
    heard.announce()
    assert [text for _, _, text, _ in upstream.sent] == ["y = 1 AND  x > 1", "x > 1 AND y = 1"]


def test_what_does_not_change_is_not_told() -> None:
    upstream, _, heard = registered("x > :low", low=0)
    assert heard.update(heard.values) is None
    assert not upstream.sent


def test_what_has_ended_tells_nothing_more() -> None:
    upstream, dispatcher, heard = registered("x > :low", low=0)
    heard.abandon()
    heard.abandon()
    heard.end(NotPermitted("no"))
    assert heard.update({"low": 3}) is None
    assert upstream.sent == [("unsubscribe", 0, False)]
    assert (len(dispatcher), heard.closed, heard.values) == (0, True, {"low": 3})


def test_refused_values_change_nothing() -> None:
    upstream, _, heard = registered("x > :low", low=0)
    for values in ({"low": "a"}, {"high": 1}):
        with pytest.raises(InvalidBinding):
            heard.changed(values)
    assert (heard.values, heard.version, upstream.sent) == ({"low": 0}, 0, [])


def test_a_durable_one_acknowledges_upstream_and_stays_what_it_is() -> None:
    upstream, _, heard = registered(
        "x > 0", SubscriptionOptions(durable=DurablePolicy("mine", 5.0))
    )
    entry = heard.receipts.expect(heard.receipts.came(7, "p", [1]), 1)
    heard.receipts.make(entry).give()
    assert upstream.sent == [("acknowledge", 0, 7)]
    assert heard.durable == "mine"
    with pytest.raises(InvalidFilter, match="stays one"):
        heard.replace(palio.parse("x = 1 THEN x = 2"), {})
    assert heard.concerns({"x": 1})
    _, _, pattern = registered("x = 1 THEN x = 2", durable("other"))
    with pytest.raises(InvalidFilter, match="stays one"):
        pattern.replace(palio.parse("x = 1"), {})


class Choosy(Reference):
    """An engine that has no room for 666."""

    def add(
        self,
        key: int,
        filter: Filter,
        values: Bindings = NO_VALUES,
        *,
        destination: int | None = None,
    ) -> None:
        self._check(f"{filter} {values}")
        super().add(key, filter, values, destination=destination)

    def bind(self, key: int, values: Bindings) -> None:
        self._check(str(values))
        super().bind(key, values)

    def _check(self, text: str) -> None:
        if "666" in text:
            raise LimitExceeded("the beast", limit="MAX_BEASTS", maximum=0)


def test_what_the_engine_refuses_leaves_nothing_in_it() -> None:
    matcher = Choosy()
    with pytest.raises(LimitExceeded):
        registered("x = 1 THEN x = 2 THEN x = 666", matcher=matcher)
    assert not len(matcher)


def test_a_change_that_the_engine_refuses_changes_nothing() -> None:
    matcher = Choosy()
    upstream, dispatcher, heard = registered(
        "x = :first THEN x = :second", matcher=matcher, first=1, second=2
    )
    with pytest.raises(LimitExceeded):
        heard.replace(palio.parse("y = 1 THEN y = 2 THEN y = 666"), {})
    with pytest.raises(LimitExceeded):
        heard.update(heard.changed({"first": 3, "second": 666}))
    assert (str(heard.what), heard.values) == (
        "x = :first THEN x = :second",
        {"first": 1, "second": 2},
    )
    assert (heard.version, upstream.sent) == (0, [])
    found = [dispatcher.match_event({name: x}).tolist() for name in "xy" for x in (1, 2, 3)]
    assert found == [[0], [1], [], [], [], []]
    assert len(matcher) == 2


def test_a_change_beyond_the_limit_of_the_engine_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "MAX_SCANS", 4)
    matcher, text = Index(), "s LIKE :first THEN s LIKE :second AND t LIKE :third"
    _, dispatcher, heard = registered(text, matcher=matcher, first="%_%", second="_%_", third="_%_")
    with pytest.raises(LimitExceeded, match="MAX_SCANS"):
        heard.update(heard.changed({"first": "____", "second": "_____", "third": "____"}))
    with pytest.raises(LimitExceeded, match="MAX_SCANS"):
        heard.replace(palio.parse(" THEN ".join(f"s LIKE '{'_' * n}'" for n in range(2, 7))), {})
    found = [dispatcher.match_event({"s": n * "a", "t": "aa"}).tolist() for n in range(3)]
    assert found == [[], [0], [0, 1]]
    assert len(matcher) == 2
