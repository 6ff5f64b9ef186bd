"""Subscribers as classes: handlers with filters, and fields that are parameters (parametric 3.3).

    class Trader(palio.Subscriber):
        last_buy = palio.Parameter(100.0)

        @palio.on("firm = 'IBM' AND price < :last_buy")
        async def quote(self, firm: str, price: float) -> None:
            self.last_buy = price

    class Market(palio.Subscriber):
        @palio.event
        async def quote(self, firm: str, price: float) -> None: ...

`await market.quote("IBM", 9.5)` publishes an event of these attributes (parametric 3.2).

Assigning to a parameter changes every filter that uses it, at once and as one update. Handlers of
one object run one after another in the order events came, so an assignment is atomic with respect
to all others; `assigning()` makes several of them one update, of its own task or thread only. An
assignment from another thread waits until it is in force.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from palio.client.delivery_queue import (
    DEFAULT_QUEUE_SIZE,
    Consumer,
    DeliveryQueue,
    check_queue_size,
)
from palio.client.events import Event, PublishReceipt
from palio.client.registration import Registration
from palio.client.subscribing import DurableOptions, DurablePolicy, as_filter, check_durable
from palio.client.typed import EVENT, Reader, argument_readers
from palio.client.upstream import PendingReply, log_refusal
from palio.errors import (
    Closed,
    HandlerFailed,
    InvalidBinding,
    InvalidEvent,
    InvalidFilter,
    PalioError,
)
from palio.model.filters import Conjunction, Constraint, Filter
from palio.model.operators import Op
from palio.model.patterns import Pattern
from palio.model.values import Bindings
from palio.protocol.messages import StoredAt
from palio.tracing import Tracing

logger: Final = logging.getLogger("palio")

AnyValue = TypeVar("AnyValue")
AnyHandler = TypeVar("AnyHandler", bound=Callable[..., Any])
AnyOwner = TypeVar("AnyOwner", bound="Subscriber")
Given = ParamSpec("Given")


class Parameter(Generic[AnyValue]):
    """A field that is a parameter of the class's filters, with its first value."""

    def __init__(self, default: AnyValue) -> None:
        self.default = default
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Parameter[AnyValue]: ...

    @overload
    def __get__(self, instance: Subscriber, owner: type) -> AnyValue: ...

    def __get__(self, instance: Subscriber | None, owner: type) -> AnyValue | Parameter[AnyValue]:
        if instance is None:
            return self
        return cast(AnyValue, instance._parameter(self.name, self.default))

    def __set__(self, instance: Subscriber, value: AnyValue | Parameter[AnyValue]) -> None:
        # A dataclass takes what stands in the class for the default, which is this very field.
        instance._assign(self.name, self.default if isinstance(value, Parameter) else value)


_MARK: Final = "__palio_handler__"
_EVENT_MARK: Final = "__palio_event__"


class Handler:
    """A method with a filter, and how its arguments come from an event."""

    def __init__(
        self,
        filter: Filter | Pattern,
        function: Callable[..., Any],
        queue_size: int,
        durable: DurablePolicy,
    ) -> None:
        self.function = function
        self.queue_size = queue_size
        self.durable = durable
        self.arguments, required = _arguments(function)
        self.what = _requiring(filter, required)
        self.narrowing = sorted({*required} - _attributes(filter))
        """Attributes that are required by its arguments alone: nothing in the filter names them."""
        self._readers: dict[str, Reader] = {}

    def read_annotations(self) -> list[str]:
        """Find what its arguments may be; the names of those whose annotation cannot be checked."""
        self._readers, unchecked = argument_readers(self.function, self.arguments)
        return unchecked

    def call(self, subscriber: Subscriber, event: Event) -> Any:
        """Call the method with the attributes that its parameters name, as they are annotated;
        `InvalidEvent` for one that does not fit.
        """
        given: dict[str, Any] = {}
        for name in self.arguments:
            if name != EVENT and name not in event:
                continue
            value, read = event if name == EVENT else event[name], self._readers.get(name)
            try:
                given[name] = value if read is None else read(value)
            except InvalidEvent as error:
                raise InvalidEvent(f"argument {name!r}: {error}") from None
        return self.function(subscriber, **given)


def on(
    filter: str | Filter | Pattern,
    *,
    queue_size: int = DEFAULT_QUEUE_SIZE,
    **durable: Unpack[DurableOptions],
) -> Callable[[AnyHandler], AnyHandler]:
    """Make a method the handler of what matches a filter.

    Its parameters are filled with the attributes of their names; one without a default makes its
    attribute required. A value that is not of the annotated type is never passed: `failed` is
    called. A parameter called `event` gets the whole event, or is read as the type of its
    annotation, such as a dataclass. For a pattern these are the
    attributes of the last event of the sequence.

    Events for all handlers of a subscriber wait in one queue, as long as the largest `queue_size`.

    With `durable_name` the handler has a durable subscription, with the options of
    `Client.subscribe`. An event is acknowledged when the method returns. If the method raises, the
    event is rejected with the error as its reason, and delivered again after a growing delay; it
    may itself call `event.nack` before. An event whose handler is cancelled is given back.
    """
    parsed = as_filter(filter, "@on")
    policy = check_durable(**durable)
    if policy.name and isinstance(parsed, Pattern):
        raise InvalidFilter(
            "a durable handler is for a filter, as occurrences of patterns cannot be rejected; "
            "iterate over a durable subscription to the pattern"
        )
    check_queue_size(queue_size)

    def mark(function: AnyHandler) -> AnyHandler:
        body = inspect.currentframe()
        before = None if body is None or body.f_back is None else body.f_back.f_locals
        name = function.__name__
        if hasattr(function, _MARK):
            raise InvalidFilter(f"{name} has @on twice; join the filters with OR in one")
        if hasattr(function, _EVENT_MARK):
            raise InvalidFilter(f"{name} has @event and @on; publish and receive by two methods")
        if before is not None and hasattr(before.get(name), _MARK):
            raise InvalidFilter(f"two handlers are called {name}; give each a name of its own")
        function.__palio_handler__ = Handler(parsed, function, queue_size, policy)  # type: ignore[attr-defined]  # a mark
        return function

    return mark


Declared: TypeAlias = Callable[Concatenate[AnyOwner, Given], Awaitable[None]]
Publishing: TypeAlias = Callable[Concatenate[AnyOwner, Given], Coroutine[Any, Any, PublishReceipt]]


@overload
def event(declared: Declared[AnyOwner, Given], /) -> Publishing[AnyOwner, Given]: ...


@overload
def event(
    *, durable: StoredAt
) -> Callable[[Declared[AnyOwner, Given]], Publishing[AnyOwner, Given]]: ...


def event(declared: Any = None, /, *, durable: StoredAt = False) -> Any:
    """Make a call of a method publish an event: its arguments are the attributes.

    The method declares names and types, and has no body of its own. Arguments that are None are
    left out. It publishes where the object is attached, and returns the receipt of `publish`.
    """
    if declared is None:
        return partial(_publishing, durable=durable)
    return _publishing(declared, durable=durable)


async def _declaration() -> None: ...


async def _described() -> None:
    """As a body that is a docstring compiles."""


_NO_BODY: Final = {_declaration.__code__.co_code, _described.__code__.co_code}


def _publishing(function: Any, *, durable: StoredAt) -> Any:
    name = function.__qualname__
    if hasattr(function, _MARK):
        raise InvalidEvent(f"{name} has @event and @on; publish and receive by two methods")
    if not inspect.iscoroutinefunction(function):
        raise InvalidEvent(f"the event {name} has to be awaited; declare it with `async def`")
    if function.__code__.co_code not in _NO_BODY:
        raise InvalidEvent(
            f"the body of the event {name} would never run; leave `...` or a docstring there"
        )
    _arguments(function)
    signature = inspect.signature(function)

    @wraps(function)
    async def publish(self: Subscriber, *given: Any, **named: Any) -> PublishReceipt:
        arguments = signature.bind(self, *given, **named)
        arguments.apply_defaults()
        _, *attributes = arguments.arguments.items()
        attached = self._attached
        if attached is None or attached.task.done():
            raise Closed(f"{name} publishes where its object is attached; await attach() first")
        present = {name: value for name, value in attributes if value is not None}
        return await attached.publish(present, durable=durable)

    setattr(publish, _EVENT_MARK, True)
    return publish


class Subscriber:
    """Base of classes with `@on` handlers and `@event` methods; `await bus.attach(it)` starts
    them.
    """

    _attached: Attached | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _handlers(cls)  # raises what is wrong with them at their definition

    def failed(self, handler: str, event: Event, error: HandlerFailed) -> None:
        """Called when a handler raised; logs it. Override to do otherwise."""
        logger.error("%s of %r raised for %r", handler, self, event, exc_info=error.__cause__)

    def refused(self, handler: str, error: PalioError) -> None:
        """Called when a handler's subscription was ended by others; logs it.

        A broker may refuse one that it took before, when the session with it is renewed, or another
        client of the same identity has cancelled it. The other handlers continue. Override to do
        otherwise.
        """
        logger.error("%s of %r receives no more events: %s", handler, self, error)

    @contextmanager
    def assigning(self) -> Iterator[None]:
        """Collect assignments and send them as one update; if the block raises, none happened.

        with self.assigning():
            self.low, self.high = 10, 20
        """
        held = self._held()
        here = _here()
        if here in held:  # already inside one: that one sends
            yield
            return
        own = held[here] = {}
        try:
            yield
            self._send(own)
        finally:
            del held[here]

    def _held(self) -> dict[object, dict[str, Any]]:
        """Assignments of open `assigning` blocks, by the task or thread inside."""
        held: dict[object, dict[str, Any]] = self.__dict__.setdefault("_open_blocks", {})
        return held

    def _assign(self, name: str, value: Any) -> None:
        held = self._held()
        own = held.get(_here()) if held else None
        if own is not None:
            own[name] = value
        else:
            self._send({name: value})

    def _parameter(self, name: str, default: Any) -> Any:
        held = self._held()
        own = held.get(_here()) if held else None
        if own is not None and name in own:
            return own[name]
        return self.__dict__.get(name, default)

    def _send(self, values: dict[str, Any]) -> None:
        """Put new values in force, on the thread that the handlers run on."""
        attached = self._attached
        if attached is None or attached.task.done():
            vars(self).update(values)
            return
        loop = attached.task.get_loop()
        if loop.is_running() and loop is not _running_loop():
            asyncio.run_coroutine_threadsafe(attached.update_there(values), loop).result()
        else:
            attached.update(values)


Register: TypeAlias = Callable[
    [Filter | Pattern, Bindings, DeliveryQueue, DurablePolicy], Registration
]
"""Queues what matches a filter from now on."""

RETRY_FIRST_S: Final = 1.0
"""The delay of an event whose durable handler raised; it doubles with each attempt."""

RETRY_DOUBLINGS: Final = 6
"""Up to 64 s: the events of a service that is back come soon."""

_NO_SPAN: Final = nullcontext()

Publish: TypeAlias = Callable[..., Coroutine[Any, Any, PublishReceipt]]
"""`publish` of a bus or a client."""


class Attached:
    """The handlers of a subscriber at work: their queue, and the task that runs them."""

    task: asyncio.Task[None]

    def __init__(
        self,
        subscriber: Subscriber,
        register: Register,
        publish: Publish,
        tracing: Tracing | None = None,
    ) -> None:
        """Register all handlers or none."""
        handlers = _handlers(type(subscriber))
        if not (handlers or _events(type(subscriber))):
            raise InvalidFilter(
                f"{type(subscriber).__name__} has no handler; mark methods with @palio.on"
            )
        before = subscriber._attached
        if before is not None and not before.task.done():
            raise InvalidFilter(f"{subscriber!r} is attached already; detach it first")
        self.publish = publish
        self._tracing = tracing
        self._is_running = self._is_stopping = False
        self._subscriber = subscriber
        self._warn_of_doubts(handlers)
        self._queue = DeliveryQueue(
            max((handler.queue_size for handler in handlers), default=DEFAULT_QUEUE_SIZE)
        )
        self._handlers: dict[Consumer, Handler] = {}
        self.registrations: list[Registration] = []
        """Those of the handlers, in their order."""
        try:
            for handler in handlers:
                values = {name: self._value_of(name) for name in handler.what.variables}
                self._add(handler, register(handler.what, values, self._queue, handler.durable))
        except BaseException:
            self.stop()
            raise
        subscriber._attached = self
        self._is_running = True
        self.task = asyncio.get_running_loop().create_task(self._run())
        # A task may end by being cancelled, before it began even: nothing is to be left behind.
        self.task.add_done_callback(lambda _: self._ended())

    def _add(self, handler: Handler, registration: Registration) -> None:
        self.registrations.append(registration)
        self._handlers[registration] = handler
        name = handler.function.__qualname__
        registration.on_refused = lambda error: self._refused(name, error)

    def _warn_of_doubts(self, handlers: list[Handler]) -> None:
        """Log probable mistakes: parameters that no filter uses, attributes that none names."""
        subscriber = self._subscriber
        used = frozenset[str]().union(*(handler.what.variables for handler in handlers))
        for name in sorted(_parameters(type(subscriber)) - used):
            logger.warning("%r: no filter uses the Parameter %r", subscriber, name)
        for handler in handlers:
            for name in handler.read_annotations():
                logger.warning(
                    "%s takes any value for %r, as its annotation cannot be read; import or define "
                    "its type at the top of the module",
                    *(handler.function.__qualname__, name),
                )
            for name in handler.narrowing:
                logger.warning(
                    "%s receives only events with the attribute %r, which its argument requires "
                    "and its filter does not name; if that is meant, add `EXISTS %s` to the filter",
                    handler.function.__qualname__,
                    name,
                    name,
                )

    def _value_of(self, name: str) -> Any:
        kind = type(self._subscriber)
        member = getattr(kind, name, None)
        if member is not None and not isinstance(member, Parameter):
            raise InvalidBinding(
                f"{kind.__name__}.{name} is {member!r:.40} and no Parameter; write {name} = "
                f"palio.Parameter({member!r:.40}) in the class, or assign to an object of it",
                name=name,
            )
        if member is None:
            raise InvalidBinding(
                f"{kind.__name__} has no Parameter {name!r} for :{name}", name=name
            )
        return getattr(self._subscriber, name)

    def update(self, values: dict[str, Any]) -> None:
        """Change the handlers that use these parameters, or none if one of them refuses. If the
        broker does, the values of before count again.
        """
        kind, now = type(self._subscriber), vars(self._subscriber)
        before = {name: now.get(name, getattr(kind, name).default) for name in values}
        for reply in self._change(values):
            log_refusal(reply, partial(self._take_back, values, before))

    def _take_back(self, refused: dict[str, Any], before: dict[str, Any]) -> None:
        """As `Subscription` takes back what its broker refuses, in all handlers."""
        now = vars(self._subscriber)
        again = {name: before[name] for name, value in refused.items() if now[name] is value}
        if again and not self.task.done():
            for reply in self._change(again):
                log_refusal(reply)

    def _change(self, values: dict[str, Any]) -> list[PendingReply]:
        """Put values in force here; the pending replies of the broker."""
        changes = []
        for registration in self.registrations:
            variables = registration.what.variables
            own = {name: value for name, value in values.items() if name in variables}
            if own:
                changes.append((registration, registration.changed(own)))
        done: list[tuple[Registration, dict[str, Any], PendingReply]] = []
        try:
            for registration, changed in changes:
                before = registration.values
                done.append((registration, before, registration.update(changed)))
        except BaseException:  # the engine has no room for it
            for registration, before, reply in reversed(done):
                log_refusal(reply)
                log_refusal(registration.update(before))
            raise
        vars(self._subscriber).update(values)
        return [reply for _, _, reply in done]

    async def update_there(self, values: dict[str, Any]) -> None:
        """`update` on the loop that the handlers run on."""
        self.update(values)

    def _refused(self, name: str, error: PalioError) -> None:
        """One handler's subscription has ended; with the last one the queue does."""
        if all(registration.closed for registration in self.registrations):
            self._queue.close()
        try:
            self._subscriber.refused(name, error)
        except Exception:  # the application's own code; the other handlers continue
            logger.exception("refused() of %r raised", self._subscriber)

    def stop(self) -> None:
        """Unsubscribe; handlers still process their backlog. Durable ones only finish the event
        that they have, and unsubscribe then, which gives the others back.
        """
        self._is_stopping = True
        for registration in self.registrations:
            if not (registration.durable and self._is_running):
                registration.abandon()
        self._queue.close()

    def _ended(self) -> None:
        self._is_running = False
        self.stop()

    async def _run(self) -> None:
        while True:
            try:
                consumer, event = await self._queue.take_event()
            except Closed:
                return
            if event.receipt is None or not self._is_stopping:
                await self._handle(self._handlers[consumer], event)

    async def _handle(self, handler: Handler, event: Event) -> None:
        """Run a handler; what it raises goes to `failed` and ends there."""
        name, tracing = handler.function.__qualname__, self._tracing
        try:
            with _NO_SPAN if tracing is None else tracing.process(name, event):
                result = handler.call(self._subscriber, event)
                if inspect.isawaitable(result):
                    await result
            event.ack()
            return
        except (Exception, asyncio.CancelledError, GeneratorExit) as error:
            if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
                raise
            if isinstance(error, GeneratorExit) and _here() is not self.task:
                raise  # nobody will run these handlers again; it is not one of them that raised
            failure = HandlerFailed(f"{name} raised {type(error).__name__}: {error}")
            failure.__cause__ = error
            if event.receipt is not None:
                doublings = min(event.attempt - 1, RETRY_DOUBLINGS)
                event.nack(RETRY_FIRST_S * 2**doublings, f"{type(error).__name__}: {error}")
        try:
            self._subscriber.failed(name, event, failure)
        except Exception:  # the application's own code again; later events still count
            logger.exception("failed() of %r raised", self._subscriber)


def _is_being_cancelled() -> bool:
    """True if this task itself is cancelled, and not only what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _here() -> object:
    """The task that runs, or the thread where there is none."""
    loop = _running_loop()
    task = None if loop is None else asyncio.current_task(loop)
    return threading.get_ident() if task is None else task


def _parameters(kind: type) -> set[str]:
    """The names of a class's parameters."""
    return {name for name in dir(kind) if isinstance(getattr(kind, name, None), Parameter)}


def _attributes(filter: Filter | Pattern) -> frozenset[str]:
    """The attributes that a filter, or a pattern's last step, reads."""
    return (filter.steps[-1] if isinstance(filter, Pattern) else filter).attributes


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _events(kind: type) -> list[str]:
    """The names of a class's event methods."""
    return [name for name in dir(kind) if hasattr(getattr(kind, name, None), _EVENT_MARK)]


def _handlers(kind: type) -> list[Handler]:
    """The handlers of a class in the order of their definition, overridden ones once; None in the
    place of one is none.
    """
    handlers: dict[str, Handler] = {}
    for base in reversed(kind.__mro__):
        for name, member in vars(base).items():
            handler = getattr(member, _MARK, None)
            if isinstance(handler, Handler):
                handlers[name] = handler
            elif member is None:
                handlers.pop(name, None)
            elif name in handlers:
                raise InvalidFilter(
                    f"{base.__qualname__}.{name} overrides a handler without @on; mark it, or set "
                    f"{name} = None to drop the handler"
                )
    return list(handlers.values())


def _arguments(function: Callable[..., Any]) -> tuple[list[str], list[str]]:
    """Names of a method's parameters after `self`, and those without a default."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    for parameter in parameters:
        if parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
            parameter.POSITIONAL_ONLY,
        ):
            raise InvalidFilter(
                f"{function.__qualname__}: parameter {parameter.name!r} cannot be filled by name"
            )
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.name != EVENT
    ]
    return [parameter.name for parameter in parameters], required


def _requiring(filter: Filter | Pattern, names: list[str]) -> Filter | Pattern:
    """The filter, or a pattern's last one, with some attributes required to be present."""
    if not names:
        return filter
    if isinstance(filter, Pattern):
        last = _with_present(filter.steps[-1], names)
        return Pattern((*filter.steps[:-1], last), filter.within)
    return _with_present(filter, names)


def _with_present(filter: Filter, names: list[str]) -> Filter:
    present = Conjunction.of(Constraint(name, Op.EXISTS) for name in names)
    return filter & Filter((present,))
