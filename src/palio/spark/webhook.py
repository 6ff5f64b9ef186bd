"""The data source `webhook`: a stream's rows posted to an address as CloudEvents, at least once.

    matches.writeStream.format("webhook").option("url", "https://example.org/hook")
        .option("deadLetter", "dead").option("checkpointLocation", "checkpoints/hook").start()

1. Each task posts its own rows, in their order. What an answer means, and how long to wait before
   the next attempt, is in language/webhooks.py; the events are as everywhere (http_events.py).
2. Every call has an `Idempotency-Key`, `query/batch/partition.row`, of its first row. Spark runs a
   micro-batch again under its number after a failure, with the same rows in the same order unless
   the query shuffles; so a sink that has seen the key has seen the call.
3. What is not taken goes to the dead letters, a file for each task in `deadLetter`; without such a
   directory the query stops, and goes on with the same micro-batch the next time. A sink that is
   gone (410) stops it in any case.
"""

from __future__ import annotations

import http.client
import logging
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from palio import files
from palio.errors import InvalidConfiguration, PalioError, Unreachable
from palio.language.http_events import to_binary, to_json
from palio.language.webhooks import Delay, Verdict, structured, verdict
from palio.model.events import SEQ, rows
from palio.model.hiding import shown_without
from palio.spark.options import Options
from palio.spark.sink import Encoding, TaskPlace

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Called", "Hook", "HookConnection", "WebhookDataSource", "calls", "hook_of"]

logger: Final = logging.getLogger("palio.spark")

MODES: Final = ("structured", "binary", "batch")
"""An event in JSON, an event in headers and a body, many events in JSON."""

OPTIONS: Final = (
    *("url", "mode", "batchSize", "attempts", "timeout", "deadLetter", "source"),
    *("token", "tokenFile", "ca", "checkpointLocation", "queryName", "path"),
)

MAX_BATCH: Final = 1_000
"""Events of one call, as for the webhooks of a broker."""

MAX_ATTEMPTS: Final = 100

MAX_ANSWER_BYTES: Final = 65_536
"""An answer's body is read so far, for the next call to take the same connection."""


class Hook(NamedTuple):
    """The options of a webhook: the address, and how to post."""

    url: str
    mode: str = "structured"
    batch: int = 1
    attempts: int = 10
    timeout_s: float = 30.0
    dead_letter: str = ""
    source: str = "palio"
    """Whose an event is said to be that is no CloudEvent by itself."""
    headers: tuple[tuple[str, str], ...] = ()
    ca: str = ""

    def __repr__(self) -> str:
        return shown_without(self, "headers")


def hook_of(given: Mapping[str, str]) -> Hook:
    """The hook that options describe; `InvalidConfiguration` says what is wrong with them.

    >>> hook_of({"url": "http://localhost/x", "header.x-from": "me"}).headers
    (('x-from', 'me'),)
    """
    options = Options(given)
    named = [name for name in given if name.lower().startswith("header.")]
    options.check((*OPTIONS, *named))
    url = options.text("url")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InvalidConfiguration(
            f"option 'url' is {url.rpartition('@')[2]!r:.200}; it takes http://host/path or "
            "https://host/path, and no user or password (a token goes into 'tokenFile')"
        )
    mode = options.text("mode", MODES[0]).lower()
    if mode not in MODES:
        raise InvalidConfiguration(f"option 'mode' is {mode!r}; it takes {', '.join(MODES)}")
    batch = options.number("batchSize", 100 if mode == "batch" else 1)
    attempts = options.number("attempts", 10)
    for name, number, most in (
        ("batchSize", batch, MAX_BATCH),
        ("attempts", attempts, MAX_ATTEMPTS),
    ):
        if number > most:
            raise InvalidConfiguration(f"option {name!r} is {number}; it takes {most} at most")
    if batch > 1 and mode != "batch":
        raise InvalidConfiguration(f"option 'batchSize' is for the mode 'batch', not {mode!r}")
    headers = {name.lower().removeprefix("header."): given[name] for name in named}
    token = options.token()
    if token:
        headers["authorization"] = f"Bearer {token}"
    return Hook(
        url,
        mode,
        batch,
        attempts,
        options.seconds("timeout", 30.0),
        options.text("deadLetter", ""),
        options.text("source", "palio"),
        tuple(sorted(headers.items())),
        options.text("ca", ""),
    )


class HookCall(NamedTuple):
    """What is posted at once."""

    key: str
    documents: list[dict[str, Any]]
    headers: dict[str, str]
    body: bytes

    def __repr__(self) -> str:
        return shown_without(self, "headers")


def calls(hook: Hook, place: TaskPlace, events: Iterable[Mapping[str, Any]]) -> Iterator[HookCall]:
    """The calls that a task makes for its rows, the same whenever it is tried again."""
    numbered = enumerate(events)
    while part := list(islice(numbered, hook.batch)):
        keys = [f"{place.query}/{place.batch}/{place.partition}.{row}" for row, _ in part]
        whole = [{**event, SEQ: key} for key, (_, event) in zip(keys, part, strict=True)]
        documents = [to_json(each, hook.source) for each in whole]
        if hook.mode == "binary":
            headers, body = to_binary(whole[0], hook.source)
        else:
            headers, body = structured(documents, as_batch=hook.mode == "batch")
        own = {"idempotency-key": keys[0], **dict(hook.headers)}
        yield HookCall(keys[0], documents, headers | own, body)


class HookConnection:
    """Posts to a hook over one connection, which is opened again when it breaks."""

    def __init__(self, hook: Hook, *, wait: Callable[[float], None] = sleep) -> None:
        self.hook = hook
        self.retried = 0
        self._wait = wait
        self._connection: http.client.HTTPConnection | None = None

    def make(self, call: HookCall) -> str:
        """Make a call until it is answered for good; why it was not taken, or nothing."""
        delay = Delay()
        reason = retry_after = ""
        for attempt in range(self.hook.attempts):
            if attempt:
                self.retried += 1
                self._wait(delay.next_s(retry_after))
            try:
                status, retry_after = self._post(call)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                reason, retry_after = str(error) or type(error).__name__, ""
                continue
            reason = f"status {status}"
            match verdict(status):
                case Verdict.TAKEN:
                    return ""
                case Verdict.GONE:
                    raise PalioError(
                        f"{self.hook.url} is gone (status 410); no more is sent there, and what "
                        "was not goes on from the checkpoint once 'url' names another"
                    )
                case Verdict.FINAL:
                    break
                case Verdict.AGAIN:
                    pass
        return reason

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _post(self, call: HookCall) -> tuple[int, str]:
        """The status, and what `Retry-After` says."""
        parts = urlsplit(self.hook.url)
        if self._connection is None:
            self._connection = self._opened(parts.hostname or "", parts.port, parts.scheme)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._connection.request("POST", target, call.body, call.headers)
        answer = self._connection.getresponse()
        answer.read(MAX_ANSWER_BYTES)
        if not answer.isclosed():  # there is more of it than anybody wants
            self.close()
        return answer.status, answer.headers.get("Retry-After", "")

    def _opened(self, host: str, port: int | None, scheme: str) -> http.client.HTTPConnection:
        timeout = self.hook.timeout_s
        if scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout)
        context = ssl.create_default_context(cafile=self.hook.ca or None)
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)


class _DeadLetters:
    """What a task's sink did not take, in a file that is there when the task is done."""

    def __init__(self, hook: Hook, place: TaskPlace) -> None:
        self._hook = hook
        name = f"{place.query}-{place.batch}-{place.partition}.jsonl"
        self._path = Path(hook.dead_letter) / name
        self._lines: list[bytes] = []

    def put(self, call: HookCall, reason: str) -> None:
        """Put a call aside."""
        if not self._hook.dead_letter:
            raise Unreachable(
                f"{self._hook.url} did not take events ({reason}); they are sent again when the "
                "query is started again, or put aside with option('deadLetter', DIRECTORY)"
            )
        for document in call.documents:
            line = {"key": call.key, "reason": reason, "event": document}
            self._lines.append(msgspec.json.encode(line))

    def keep(self) -> None:
        """Write the file, or remove that of an earlier attempt."""
        if not self._hook.dead_letter:
            return
        if not self._lines:
            self._path.unlink(missing_ok=True)
            return
        home = files.make_directory(self._path.parent)
        with files.replaced(self._path, files.file_mode_in(home), shared=True) as file:
            file.write(b"\n".join([*self._lines, b""]))


@dataclass
class Called(WriterCommitMessage):
    """What became of a task's events."""

    taken: int
    dead: int
    retried: int
    """Calls that were made again."""


def post_all(
    hook: Hook,
    place: TaskPlace,
    events: Iterable[Mapping[str, Any]],
    *,
    wait: Callable[[float], None] = sleep,
) -> Called:
    """Post all events of a task."""
    caller = HookConnection(hook, wait=wait)
    letters = _DeadLetters(hook, place)
    taken = dead = 0
    try:
        for call in calls(hook, place, events):
            reason = caller.make(call)
            if reason:
                letters.put(call, reason)
                dead += len(call.documents)
            else:
                taken += len(call.documents)
    finally:
        caller.close()
    letters.keep()
    return Called(taken, dead, caller.retried)


class _Posting:
    """What both writers do."""

    def __init__(self, hook: Hook, schema: StructType) -> None:
        self.hook = hook
        self._encoding = Encoding(schema)

    def _posted(self, batches: Iterator[pa.RecordBatch], job: str = "") -> Called:
        place = TaskPlace.here()
        if job:
            place = place._replace(query=job)
        events = chain.from_iterable(rows(self._encoding.events(batch)) for batch in batches)
        return post_all(self.hook, place, events)

    def _tell(self, messages: Iterable[WriterCommitMessage | None], batch: int = 0) -> None:
        dead = sum(each.dead for each in messages if isinstance(each, Called))
        if dead:
            logger.warning(
                "%s did not take %d events of micro-batch %d; they are in %s",
                self.hook.url,
                dead,
                batch,
                self.hook.dead_letter,
            )


class StreamPosts(_Posting, DataSourceStreamArrowWriter):
    """Posts the micro-batches of a stream."""

    def write(  # type: ignore[override]  # as pyspark's own writers of Arrow do
        self, iterator: Iterator[pa.RecordBatch]
    ) -> Called:
        """What a task does."""
        return self._posted(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """All tasks are done: tell what was not taken."""
        self._tell(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """What was posted was posted; its keys are the same the next time."""


class BatchPosts(_Posting, DataSourceArrowWriter):
    """Posts a static DataFrame, under new keys for each time that it is written."""

    def __init__(self, hook: Hook, schema: StructType) -> None:
        super().__init__(hook, schema)
        self._job = str(uuid4())

    def write(  # type: ignore[override]  # as pyspark's own writers of Arrow do
        self, iterator: Iterator[pa.RecordBatch]
    ) -> Called:
        """What a task does."""
        return self._posted(iterator, self._job)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done: tell what was not taken."""
        self._tell(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was posted was posted."""


class WebhookDataSource(DataSource):
    """What Spark asks for `format("webhook")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "webhook"

    def writer(self, schema: StructType, overwrite: bool) -> BatchPosts:
        """Posts a static DataFrame."""
        return BatchPosts(hook_of(self._given(overwrite=overwrite)), schema)

    def streamWriter(  # noqa: N802  # Spark's name
        self, schema: StructType, overwrite: bool
    ) -> StreamPosts:
        """Posts a stream."""
        return StreamPosts(hook_of(self._given(overwrite=overwrite)), schema)

    def _given(self, *, overwrite: bool) -> dict[str, str]:
        if overwrite:
            raise InvalidConfiguration("what was posted stays so; use the mode 'append'")
        return dict(self.options)
