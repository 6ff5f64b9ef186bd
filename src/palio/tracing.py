"""`Tracing`: OpenTelemetry spans of publications, handlers and webhooks.

An event carries the W3C trace context in its attributes `traceparent` and `tracestate`, the names
of the CloudEvents extension for distributed tracing. Any receiver can continue the trace from them.

1. `publish` is a PRODUCER span, and its context goes into the events. Events with a context of
   their own keep it, and the span links to it.
2. A handler is a CONSUMER span, a child of the event's context.
3. The POST of a webhook is a CLIENT span, which links to the contexts of its events, and is a
   child of that of a single one. Its context goes out in the headers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol, Self, TypeVar

from palio.errors import NotSupported

TRACE_CONTEXT: Final = frozenset({"traceparent", "tracestate"})
"""The attributes that carry the trace context of an event."""

Receipt = TypeVar("Receipt")


class HttpAnswer(Protocol):
    """The part of an HTTP response that a span describes."""

    @property
    def status(self) -> int:
        """The status code."""


Answer = TypeVar("Answer", bound=HttpAnswer)


class Tracing:
    """Makes spans with the tracer provider of the process; `NotSupported` without its API."""

    def __init__(self) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.context import Context
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise NotSupported(
                "tracing needs the API of OpenTelemetry; pip install 'palio[otel]'"
            ) from None
        self._trace: Any = trace
        self._no_parent: Any = Context()
        self._propagator: Any = TraceContextTextMapPropagator()
        self._tracer: Any = trace.get_tracer("palio")

    @classmethod
    def if_installed(cls) -> Self | None:
        """Tracing, or None without OpenTelemetry."""
        try:
            return cls()
        except NotSupported:
            return None

    def publish(
        self, events: object, offer: Callable[[dict[str, str]], asyncio.Future[Receipt]]
    ) -> asyncio.Future[Receipt]:
        """Call `offer` with the context of a span, which lasts until the receipt is there."""
        span = self._tracer.start_span(
            "publish",
            kind=self._trace.SpanKind.PRODUCER,
            attributes=_attributes("publish", "send"),
            links=self._links([events] if isinstance(events, Mapping) else []),
        )
        try:
            with self._trace.use_span(span):
                receipt = offer(self._injected())
        except BaseException:
            span.end()
            raise

        def ended(receipt: asyncio.Future[Receipt]) -> None:
            error = None if receipt.cancelled() else receipt.exception()
            if error is not None:
                span.record_exception(error)
                span.set_status(self._trace.StatusCode.ERROR, str(error))
            span.end()

        receipt.add_done_callback(ended)
        return receipt

    @contextmanager
    def process(self, handler: str, event: Mapping[str, Any]) -> Iterator[None]:
        """The span of a handler. The subscriber's task has no parent span of its own."""
        with self._tracer.start_as_current_span(
            f"process {handler}",
            self._context_of(event),
            self._trace.SpanKind.CONSUMER,
            _attributes("process", "process"),
        ):
            yield

    async def post(
        self,
        host: str,
        events: Iterable[Mapping[str, Any]],
        send: Callable[[dict[str, str]], Awaitable[Answer]],
    ) -> Answer:
        """Call `send` with the headers of a span, which lasts until the answer is there."""
        listed = list(events)
        with self._tracer.start_as_current_span(
            "POST",
            self._context_of(listed[0] if len(listed) == 1 else {}),
            self._trace.SpanKind.CLIENT,
            {"http.request.method": "POST", "server.address": host},
            self._links(listed),
        ) as span:
            answer = await send(self._injected())
            span.set_attribute("http.response.status_code", answer.status)
            if answer.status >= 400:
                span.set_status(self._trace.StatusCode.ERROR)
            return answer

    def _injected(self) -> dict[str, str]:
        """The context of the current span."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier

    def _context_of(self, event: Mapping[str, Any]) -> Any:
        """The context of an event. Anyone may publish any value under these names."""
        carrier = {name: event[name] for name in TRACE_CONTEXT if isinstance(event.get(name), str)}
        return self._propagator.extract(carrier, self._no_parent)

    def _links(self, events: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Links to the contexts of events, where they have one."""
        contexts = (
            self._trace.get_current_span(self._context_of(event)).get_span_context()
            for event in events
        )
        return [self._trace.Link(context) for context in contexts if context.is_valid]


def _attributes(name: str, kind: str) -> dict[str, str]:
    """Attributes of the semantic conventions for messaging."""
    return {
        "messaging.system": "palio",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
