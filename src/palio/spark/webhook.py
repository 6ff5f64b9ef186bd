"""The data source `webhook`: a stream's rows posted to an address as CloudEvents, at least once.

    matches.writeStream.format("webhook").option("url", "https://example.org/hook")
        .option("deadLetter", "dead").option("checkpointLocation", "checkpoints/hook").start()

1. Each task posts its own rows, in their order. language/webhooks.py has the meaning of an answer
   and the delay of the next attempt; http_events.py has the encoding of events.
2. Every call has an `Idempotency-Key`, `query/batch/partition.row`, of its first row. Spark repeats
   a micro-batch under its number after a failure, with the same rows in the same order unless the
   query shuffles. So a sink that has seen the key has seen the call.
3. Rejected events go to the dead letters, a file for each task in `deadLetter`. Without such a
   directory the query stops, and resumes with the same micro-batch at the next start. A sink that
   is gone (410) stops it in any case.
"""

from __future__ import annotations

import http.client
import logging
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
from msgspec import Meta, field
from pyspark.sql.datasource import DataSource, WriterCommitMessage

from palio import files
from palio.errors import InvalidConfiguration, PalioError, Unreachable
from palio.language.http_events import to_binary, to_json
from palio.language.webhooks import Delay, Verdict, structured, verdict
from palio.model.events import SEQ, rows
from palio.model.printing import shown_without
from palio.spark.options import Address, Options, Seconds, read_options
from palio.spark.sink import BatchWriter, Encoding, StreamWriter
from palio.spark.tasks import TaskPlace

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger: Final = logging.getLogger("palio.spark")

MAX_BATCH: Final = 1_000
"""Events of one call, as for the webhooks of a broker."""

DEFAULT_BATCH: Final = 100
"""...and the default of the mode `batch`."""

MAX_ATTEMPTS: Final = 100

MAX_ANSWER_BYTES: Final = 65_536
"""An answer's body is read so far, for the next call to take the same connection."""


class Hook(Options, frozen=True, kw_only=True):
    """The options of a webhook: the address, and how to post."""

    url: Address
    mode: Literal["structured", "binary", "batch"] = "structured"
    """An event in JSON, an event in headers and a body, many events in JSON."""
    batch_size: Annotated[int, Meta(ge=1, le=MAX_BATCH)] | None = None
    attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] = 10
    timeout: Seconds = 30.0
    dead_letter: str = ""
    source: str = "palio"
    """The `source` of events that are no CloudEvents by themselves."""
    token: str = ""
    token_file: str = ""
    header: dict[str, str] = field(default_factory=dict)
    ca: str = ""
    checkpoint_location: str = ""
    query_name: str = ""
    path: str = ""

    @property
    def batch(self) -> int:
        """Events of one call."""
        return self.batch_size or (DEFAULT_BATCH if self.mode == "batch" else 1)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every call."""
        bearer = {"authorization": f"Bearer {self.token}"} if self.token else {}
        return self.header | bearer


def hook_of(given: Mapping[str, str]) -> Hook:
    """Return the hook that options describe; `InvalidConfiguration` names their problems.

    >>> hook_of({"url": "http://localhost/x", "header.x-from": "me"}).headers
    {'x-from': 'me'}
    """
    hook = read_options(Hook, given)
    parts = urlsplit(hook.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InvalidConfiguration(
            f"option 'url' is {hook.url.rpartition('@')[2]!r:.200}; it takes http://host/path or "
            "https://host/path, and no user or password (a token goes into 'tokenFile')"
        )
    if hook.batch > 1 and hook.mode != "batch":
        raise InvalidConfiguration(f"option 'batchSize' is for the mode 'batch', not {hook.mode!r}")
    return hook


class HookCall(NamedTuple):
    """One call: events that are posted together."""

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
        documents = [to_json(event, hook.source) for event in whole]
        if hook.mode == "binary":
            headers, body = to_binary(whole[0], hook.source)
        else:
            headers, body = structured(documents, as_batch=hook.mode == "batch")
        own = {"idempotency-key": keys[0], **hook.headers}
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
                        "was not continues from the checkpoint once 'url' names another"
                    )
                case Verdict.FINAL:
                    break
                case Verdict.AGAIN:
                    pass
        return reason

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _post(self, call: HookCall) -> tuple[int, str]:
        """Post a call; return the status and the value of `Retry-After`."""
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
        timeout = self.hook.timeout
        if scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout)
        context = ssl.create_default_context(cafile=self.hook.ca or None)
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)


class _DeadLetters:
    """The events that a task's sink did not take, in a file that is whole or not there."""

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
    """The outcome of a task: counts of its events."""

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


class Poster:
    """Posts the rows of tasks (see `Sender`)."""

    def __init__(self, hook: Hook, schema: StructType) -> None:
        self._hook = hook
        self._encoding = Encoding(schema)

    def send(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> Called:
        """Post the rows of a partition."""
        events = chain.from_iterable(rows(self._encoding.events(batch)) for batch in batches)
        return post_all(self._hook, place, events)

    def finish(self, reports: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Log events that were not taken."""
        dead = sum(report.dead for report in reports if isinstance(report, Called))
        if dead:
            logger.warning(
                "%s did not take %d events of micro-batch %d; they are in %s",
                self._hook.url,
                dead,
                batch,
                self._hook.dead_letter,
            )


class WebhookDataSource(DataSource):
    """The data source of `format("webhook")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "webhook"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Posts a static DataFrame."""
        return BatchWriter(self._poster(schema, overwrite=overwrite))

    def streamWriter(  # noqa: N802  # Spark's name
        self, schema: StructType, overwrite: bool
    ) -> StreamWriter:
        """Posts a stream."""
        return StreamWriter(self._poster(schema, overwrite=overwrite))

    def _poster(self, schema: StructType, *, overwrite: bool) -> Poster:
        if overwrite:
            raise InvalidConfiguration("what was posted stays so; use the mode 'append'")
        return Poster(hook_of(self.options), schema)
