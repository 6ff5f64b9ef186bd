"""Spans of publications, handlers and webhooks, in the SDK's exporter in memory."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

import httpcore
import pyarrow as pa
import pytest

import palio
from palio.errors import HandlerFailed, InvalidEvent, NoAnswer, NotSupported
from palio.server.http.cursors import CursorFeed, Item
from palio.server.webhooks.webhook import Webhook
from palio.testing import Network
from palio.tracing import Tracing
from tests.client.virtual import in_virtual_time
from tests.server import fronts
from tests.server.webhooks.test_webhook import Script, Sink, subscription

trace = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
"""The trace context of an application that makes its own spans."""


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Collects the finished spans of a provider that this test alone uses."""
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


def by_name(spans: Any) -> dict[str, Any]:
    return {span.name: span for span in spans.get_finished_spans()}


def traceparent(span: Any) -> str:
    return written(span.get_span_context())


def parent_of(span: Any) -> str:
    return written(span.parent)


def written(context: Any) -> str:
    """As W3C writes it."""
    flags = context.trace_flags
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"


class Buyer(palio.Subscriber):
    def __init__(self) -> None:
        self.bought: asyncio.Queue[palio.Event] = asyncio.Queue()

    @palio.on("price < 10")
    async def buy(self, price: float, event: palio.Event) -> None:
        self.bought.put_nowait(event)
        if price < 0:
            raise ValueError("a negative price")

    def failed(self, handler: str, event: palio.Event, error: HandlerFailed) -> None:
        """The tests see the error in the span."""


async def over_two_brokers(published: Any, count: int = 1) -> list[palio.Event]:
    """The events as a traced handler at another broker receives them."""
    async with Network("line:2") as net:
        publisher, client = [await net.connect(name, tracing=True) for name in ("b1", "b2")]
        buyer = await client.attach(Buyer())
        await client.settled()
        await publisher.publish(published)
        got = [await buyer.bought.get() for _ in range(count)]
        await client.detach(buyer)
        return got


@in_virtual_time
async def test_a_handler_continues_the_trace_of_the_publication(spans: Any) -> None:
    with trace.get_tracer("app").start_as_current_span("request"):
        (event,) = await over_two_brokers({"price": 9.5})
    named = by_name(spans)
    publication, handler = named["publish"], named["process Buyer.buy"]
    assert publication.parent == named["request"].get_span_context()
    assert parent_of(handler) == traceparent(publication)
    assert (publication.kind.name, handler.kind.name) == ("PRODUCER", "CONSUMER")
    assert dict(event) == {"price": 9.5, "traceparent": traceparent(publication)}
    assert publication.attributes["messaging.operation.type"] == "send"
    assert handler.attributes["messaging.operation.type"] == "process"


@in_virtual_time
async def test_all_events_of_a_call_carry_its_context(spans: Any) -> None:
    events = await over_two_brokers([{"price": 1}, {"price": 2, "tags": ["a"]}], 2)
    assert {event["traceparent"] for event in events} == {traceparent(by_name(spans)["publish"])}
    assert events[1].payload == {"price": 2, "tags": ["a"]}


@in_virtual_time
async def test_an_event_keeps_its_own_context_and_the_publication_links_to_it(spans: Any) -> None:
    (event,) = await over_two_brokers({"price": 1, "traceparent": THEIRS})
    named = by_name(spans)
    assert dict(event) == {"price": 1, "traceparent": THEIRS}
    (link,) = named["publish"].links
    assert written(link.context) == parent_of(named["process Buyer.buy"]) == THEIRS


@pytest.mark.parametrize("own", [None, THEIRS])
@in_virtual_time
async def test_rows_of_a_table_carry_the_context_unless_it_has_its_own(
    spans: Any, own: str | None
) -> None:
    columns: dict[str, list[Any]] = {"price": [1, 2]}
    if own is not None:
        columns["traceparent"] = [own, own]
    events = await over_two_brokers(pa.record_batch(columns), 2)
    expected = own or traceparent(by_name(spans)["publish"])
    assert [event["traceparent"] for event in events] == [expected, expected]


@pytest.mark.usefixtures("spans")
@in_virtual_time
async def test_the_trace_state_goes_along_unless_the_event_has_a_context() -> None:
    state = trace.TraceState([("vendor", "1")])
    parent = trace.SpanContext(1, 2, False, trace.TraceFlags(1), state)
    with trace.use_span(trace.NonRecordingSpan(parent)):
        (event,) = await over_two_brokers({"price": 1})
        (own,) = await over_two_brokers({"price": 1, "traceparent": THEIRS})
    assert event["tracestate"] == "vendor=1"
    assert "tracestate" not in own


@pytest.mark.parametrize("given", [7, b"x", "", "00-zz", "0" * 10_000])
@in_virtual_time
async def test_a_handler_of_an_event_without_a_valid_context_begins_a_trace(
    spans: Any, given: Any
) -> None:
    await over_two_brokers({"price": 1, "traceparent": given})
    named = by_name(spans)
    assert named["process Buyer.buy"].parent is None
    assert not named["publish"].links


@in_virtual_time
async def test_the_span_has_the_error_of_a_handler(spans: Any) -> None:
    await over_two_brokers({"price": -1.0})
    handler = by_name(spans)["process Buyer.buy"]
    assert handler.status.status_code.name == "ERROR"
    assert handler.events[0].attributes["exception.message"] == "a negative price"


@in_virtual_time
async def test_the_span_has_the_error_of_a_publication(spans: Any) -> None:
    async with Network() as net:
        client = await net.connect("b1", tracing=True)
        with pytest.raises(InvalidEvent):
            await client.publish({"$seq": 1})
        net.kill("b1")
        with pytest.raises(NoAnswer):
            await client.publish({"x": 1}, timeout=1.0)
    refused, unanswered = spans.get_finished_spans()
    assert refused.status.status_code.name == unanswered.status.status_code.name == "ERROR"
    assert "InvalidEvent" in refused.events[0].attributes["exception.type"]
    assert "NoAnswer" in unanswered.events[0].attributes["exception.type"]


@in_virtual_time
async def test_without_tracing_nothing_is_added(spans: Any) -> None:
    async with Network() as net:
        client = await net.connect("b1")
        buyer = await client.attach(Buyer())
        await client.publish({"price": 1})
        assert dict(await buyer.bought.get()) == {"price": 1}
    assert not spans.get_finished_spans()


# --- webhooks ---


async def posted(sink: Sink, *contexts: str, batch: int = 1) -> None:
    documents = [
        fronts.event(number, traceparent=context) for number, context in enumerate(contexts)
    ]
    feed = Script(*(Item("", document) for document in documents))
    webhook = Webhook(sink.sinks, subscription(batch=batch, attempts=1), tracing=Tracing())
    await webhook.run(cast(CursorFeed, feed))


async def test_a_webhook_continues_the_trace_of_its_event(spans: Any) -> None:
    sink = Sink()
    await posted(sink, THEIRS)
    (span,) = spans.get_finished_spans()
    assert sink.calls[0].headers["traceparent"] == traceparent(span)
    assert parent_of(span) == THEIRS
    assert span.kind.name == "CLIENT"
    assert dict(span.attributes) == {
        "http.request.method": "POST",
        "server.address": "sink.example",
        "http.response.status_code": 200,
    }


async def test_a_webhook_links_to_each_event_of_a_batch(spans: Any) -> None:
    await posted(Sink(), THEIRS, THEIRS.replace("b7ad", "c8be"), "", batch=3)
    (span,) = spans.get_finished_spans()
    assert span.parent is None
    assert [f"{link.context.span_id:x}"[:4] for link in span.links] == ["b7ad", "c8be"]


@pytest.mark.parametrize("failure", [500, httpcore.ConnectError("refused")])
async def test_the_span_of_a_webhook_says_that_it_failed(spans: Any, failure: Any) -> None:
    await posted(Sink(failure), THEIRS)
    (span,) = spans.get_finished_spans()
    assert span.status.status_code.name == "ERROR"


async def test_the_webhooks_of_a_broker_continue_traces_that_come_by_http(spans: Any) -> None:
    sink = Sink()
    async with (
        fronts.broker() as server,
        fronts.asked(server, sinks=sink.sinks) as client,
    ):
        made = await client.post("/subscriptions", json={"sink": "https://sink.example/hook"})
        assert made.status_code == 201
        await fronts.publish(client, fronts.event(1, traceparent=THEIRS))
        (sent,) = await sink.heard(1)
    (span,) = spans.get_finished_spans()
    assert sent["traceparent"] == parent_of(span) == THEIRS
    assert sink.calls[0].headers["traceparent"] == traceparent(span)


async def test_without_opentelemetry_connect_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(NotSupported, match=r"palio\[otel\]"):
        _ = palio.connect("palio://localhost:7400", tracing=True)
    assert Tracing.if_installed() is None
