"""`palio.js` in Chromium, on a page of another origin, against a real broker."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import httpx
import pytest

from palio.server.server import Server
from tests.browser.chromium import WAIT_S, Chromium, Page, chromium, site
from tests.conftest import seeds
from tests.pages import blocks
from tests.server.fronts import broker, listening, publish
from tests.server.helpers import until

ROOT: Final = Path(__file__).parents[2]
EXAMPLE: Final = ROOT / "examples" / "browser"
QUICKSTART: Final = ROOT / "docs" / "quickstart" / "browser.md"
ORIGINS: Final = ("http://localhost:*",)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


def attributes(**values: Any) -> dict[str, Any]:
    """An event of plain attributes, as a CloudEvent."""
    return {"specversion": "1.0", "id": "1", "source": "/t", "type": "palio.event", "data": values}


class Front:
    """The HTTP port of a broker, which can be closed and opened again at the same address."""

    def __init__(self, server: Server, data_dir: str) -> None:
        self._server = server
        self._data_dir = data_dir
        self._stack = AsyncExitStack()
        self._port = 0
        self.client: httpx.AsyncClient

    async def start(self) -> None:
        section = {"port": self._port, "allowed_origins": ORIGINS}
        self.client = await self._stack.enter_async_context(
            listening(self._server, self._data_dir, http=section)
        )
        self._port = self.client.base_url.port or 0

    async def stop(self) -> None:
        await self._stack.aclose()

    def status(self) -> dict[str, Any]:
        return self._server.node.status()

    @property
    def address(self) -> str:
        return str(self.client.base_url).rstrip("/")


@asynccontextmanager
async def page_of(browser: Chromium, tmp_path: Path) -> AsyncIterator[tuple[Front, Page]]:
    """A broker with a disk, and an empty page that has its client."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("<!doctype html><title>t</title>")
    async with broker(tmp_path / "data") as server:
        front = Front(server, str(tmp_path / "data"))
        await front.start()
        try:
            with site(tmp_path / "site") as origin:
                async with browser.page() as page:
                    await page.open(f"{origin}/index.html")
                    await page.run(
                        f"import('{front.address}/palio.js').then(({{Broker}}) => "
                        f"{{ globalThis.broker = new Broker('{front.address}'); }})"
                    )
                    yield front, page
        finally:
            await front.stop()


def listens(filter: str, parameters: dict[str, Any], **options: Any) -> str:
    """Subscribe in the page, and keep what comes in `seen`, `gaps` and `failed`."""
    arguments = json.dumps([filter, parameters, options])[1:-1]
    return f"""
        globalThis.seen = []; globalThis.gaps = []; globalThis.failed = [];
        globalThis.sub = broker.subscribe({arguments});
        sub.addEventListener("event", ({{detail}}) => seen.push(detail.n ?? detail));
        sub.addEventListener("gap", ({{detail}}) => gaps.push(detail));
        sub.addEventListener("error", ({{detail}}) => failed.push([detail.type, detail.message]));
        null
    """


async def test_the_example_page(browser: Chromium) -> None:
    async with broker() as server:
        http = {"port": 0, "allowed_origins": ORIGINS}
        async with listening(server, http=http) as client, browser.page() as page:
            with site(EXAMPLE) as origin:
                await page.open(f"{origin}/index.html?broker={client.base_url}")
                await page.until("document.getElementById('state').textContent === 'open'")
                await publish(client, attributes(symbol="IBM", price=49), attributes(price=50))
                await page.until("document.getElementById('events').textContent === 'IBM 49'")
                await page.run(
                    "const limit = document.getElementById('limit'); limit.value = 10;"
                    "limit.dispatchEvent(new Event('input')); null"
                )
                await page.until("document.getElementById('shown').textContent === '10'")
                await enter(page, "prise <")
                await page.until("document.getElementById('problem').textContent !== ''")
                await enter(page, "price < :limit AND symbol = 'SAP'")
                await page.until("document.getElementById('problem').textContent === ''")
                await publish(
                    client,
                    attributes(symbol="SAP", price=11),
                    attributes(symbol="IBM", price=8),
                    attributes(symbol="SAP", price=9),
                )
                await page.until("document.querySelector('li').textContent === 'SAP 9'")
                assert await page.run("document.getElementById('events').childElementCount") == 2
                assert page.complaints == []


async def enter(page: Page, text: str) -> None:
    await page.run(
        f"filter = document.getElementById('filter'); filter.value = {json.dumps(text)};"
        "filter.dispatchEvent(new Event('change')); null"
    )


async def test_the_quickstart(browser: Chromium, tmp_path: Path) -> None:
    """Its settings and its page as they are, but for the ports."""
    settings, html = [each for each in blocks(QUICKSTART.read_text("utf-8")) if each.info]
    assert (settings.info, html.info) == (("palio.toml",), ("index.html",))
    with site(tmp_path) as origin:
        text = settings.code.replace("http://localhost:8000", origin).replace("7480", "0")
        (tmp_path / "palio.toml").write_text(text)
        with served("--config", str(tmp_path / "palio.toml")) as address:
            (tmp_path / "index.html").write_text(
                html.code.replace("http://localhost:7480", address)
            )
            async with browser.page() as page, httpx.AsyncClient(base_url=address) as client:
                await page.open(f"{origin}/index.html")
                async with asyncio.timeout(WAIT_S):
                    while not await page.run("events.textContent"):
                        await publish(client, attributes(symbol="IBM", price=9.5))
                assert (await page.run("events.textContent")).startswith("IBM 9.5")
                await page.run("limit.value = 5; limit.oninput()")
                assert await page.run("shown.value") == "5"
                assert page.complaints == []


@contextmanager
def served(*options: str) -> Iterator[str]:
    """Run `palio serve`, and return the address of its HTTP port."""
    command = (sys.executable, "-m", "palio", "serve", "--listen", "127.0.0.1:0", "--json")
    with subprocess.Popen((*command, *options), stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["listening"]["http"]
        finally:
            process.terminate()


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_changes_are_answered(browser: Chromium, tmp_path: Path, transport: str) -> None:
    async with page_of(browser, tmp_path) as (front, page):
        await page.run(listens("n < :limit", {"limit": 5}, transport=transport))
        await page.until("sub.state === 'open'")
        await page.run("sub.update({limit: 10})")
        await publish(front.client, attributes(n=9))
        await page.until("seen.length === 1")
        refused = "sub.update({limit: '60'}).then(() => 'taken', (error) => error.message)"
        assert "is the text '60'" in await page.run(refused)
        refused = "sub.replace('n <').then(() => 'taken', (error) => error.type)"
        assert await page.run(refused) in ("ParseError", "Refused")
        await page.run("sub.replace('n IN :some', {some: [20, 30]})")
        await page.run("Promise.all([sub.update({some: [30]}), sub.update({some: [30, 40]})])")
        await publish(front.client, attributes(n=9), attributes(n=20), attributes(n=40))
        await page.until("seen.length === 2")
        assert await page.run("[seen, gaps, failed, sub.state]") == [[9, 40], [], [], "open"]


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_what_is_refused_ends_with_words(
    browser: Chromium, tmp_path: Path, transport: str
) -> None:
    async with page_of(browser, tmp_path) as (_, page):
        await page.run(listens("n <", {}, transport=transport))
        await page.until("failed.length === 1")
        assert "line 1, column" in (await page.run("failed[0]"))[1]
        assert await page.run("sub.state") == "closed"
        refused = "broker.publish({n: {m: undefined}, specversion: '1.0'}).catch((e) => e.type)"
        assert await page.run(refused) == "InvalidEvent"
        iterated = "(async () => { for await (const event of sub); })().catch((e) => e.message)"
        assert "line 1, column" in await page.run(iterated)


async def test_a_live_stream_that_breaks_resumes_from_its_cursor(
    browser: Chromium, tmp_path: Path
) -> None:
    async with page_of(browser, tmp_path) as (front, page):
        for transport in ("websocket", "sse"):
            await page.run(listens("n >= 0", {}, transport=transport))
            await page.until("sub.state === 'open'")
            await page.run("sub._link.abort()")  # before any event
            await publish(front.client, attributes(n=1))
            await page.until("seen.length === 1")
            await page.run("sub._link.abort()")
            await publish(front.client, attributes(n=2))
            await page.until("seen.length === 2")
            assert await page.run("[seen, gaps]") == [[1, 2], []]
            await page.run("sub.close()")


async def test_a_page_that_slept_notices_and_is_told_a_gap(
    browser: Chromium, tmp_path: Path
) -> None:
    async with page_of(browser, tmp_path) as (front, page):
        await page.run(listens("n >= 0", {}))
        await page.until("sub.state === 'open'")
        await publish(front.client, attributes(n=1))
        await page.until("seen.length === 1")
        # As after an hour of sleep: the session is over at the broker, the page heard long ago.
        await page.run("sub._cursor = sub._cursor.replace(/s\\.[^.]+/, 's.gone'); null")
        await page.run("sub._link.heardAt -= 3_600_000; null")
        await page.until("gaps.length === 1")
        await publish(front.client, attributes(n=2))
        await page.until("seen.length === 2")
        assert await page.run("gaps[0].publisher") == "*"


async def test_pages_of_other_origins_are_kept_out(browser: Chromium, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<!doctype html><title>t</title>")
    http = {"port": 0, "allowed_origins": ["https://app.example"]}
    async with broker() as server, listening(server, http=http) as client, browser.page() as page:
        with site(tmp_path) as origin:
            await page.open(f"{origin}/index.html")
            base = str(client.base_url).rstrip("/")
            fetched = f"fetch('{base}/healthz').then(() => 'read', () => 'kept out')"
            assert await page.run(fetched) == "kept out"
            reason = f"""new Promise((resolve) => {{
                const socket = new WebSocket('{base.replace("http", "ws")}/events?filter=TRUE');
                socket.onclose = ({{reason}}) => resolve(reason);
            }})"""
            assert "another site" in await page.run(reason)


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_durable_events_outlive_interruptions(
    browser: Chromium, tmp_path: Path, transport: str
) -> None:
    """Connections break at random, the broker's port closes and opens, the page is left and loaded
    again: each event comes, in order; only a page that was left may have some again.
    """
    interruptions = seeds(10, nightly=100)
    drawn = random.Random(interruptions.start)
    async with page_of(browser, tmp_path) as (front, page):
        await page.run(listens("n >= :least", {"least": 0}, durable=True, transport=transport))
        await page.until("sub.state === 'open'")
        sent = 0
        for _ in interruptions:
            for _ in range(drawn.randrange(4)):
                await publish(front.client, attributes(n=sent), query="?durable=true")
                sent += 1
            if drawn.random() < 0.3:
                await front.stop()
                await page.until("sub.state !== 'open'")
                await front.start()
                await page.run("sub._online(); null")
            elif drawn.random() < 0.7:
                await page.run("sub._link?.abort(); sub._online(); null")
        await publish(front.client, attributes(n=sent), query="?durable=true")
        await page.until(f"(sub._online(), seen.at(-1) === {sent})")  # without the long waits
        assert await page.run("[seen, gaps, failed]") == [[*range(sent + 1)], [], []]
        async with asyncio.timeout(WAIT_S):
            id = await page.run("sub.id")
            await page.run("sub.close()")
            await page.run(listens("n >= :least", {"least": 0}, durable=id, transport=transport))
            await page.until("sub.state === 'open'")
            await publish(front.client, attributes(n=-2), query="?durable=true")
            await page.run("sub.update({least: -2})")
            await publish(front.client, attributes(n=-1), query="?durable=true")
            await page.until("seen.at(-1) === -1")
            assert -2 not in await page.run("seen")
            await page.run("broker.remove(sub.id)")
            await page.until("sub.state === 'closed' || sub.state === 'waiting'")


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_of_two_that_open_one_durable_subscription_the_later_stays(
    browser: Chromium, tmp_path: Path, transport: str
) -> None:
    async with page_of(browser, tmp_path) as (front, page):
        await page.run(listens("EXISTS n", {}, durable=True, transport=transport))
        await page.until("sub.state === 'open'")
        await page.run("globalThis.earlier = sub; globalThis.ended = failed; null")
        id = await page.run("sub.id")
        await page.run(listens("EXISTS n", {}, durable=id, transport=transport))
        await page.until("sub.state === 'open' && earlier.state === 'closed'")
        assert "taken over by another session" in (await page.run("earlier.error.message"))
        await publish(front.client, attributes(n=1), query="?durable=true")
        await page.until("seen.at(-1) === 1")
        assert await page.run("sub.state") == "open"


@pytest.mark.parametrize("ack", ["auto", "manual"])
@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_a_rejected_event_comes_again_with_all_after_it(
    browser: Chromium, tmp_path: Path, transport: str, ack: str
) -> None:
    async with page_of(browser, tmp_path) as (front, page):
        await page.run(listens("EXISTS n", {}, durable=True, transport=transport, ack=ack))
        await page.run("""
            globalThis.iterated = []; globalThis.rejected = 0;
            (async () => { for await (const {n} of sub) iterated.push(n); })();
            sub.addEventListener("event", ({detail}) => {
                globalThis.stale ??= detail;
                if (detail.n % 3 === 0 && rejected++ % 2 === 0) sub.nack(detail, 50);
                else sub.ack(detail);
            });
            null
        """)
        await page.until("sub.state === 'open'")
        for numbers in (range(2), range(2, 5), range(5, 8)):
            events = [attributes(n=n) for n in numbers]
            await publish(front.client, *events, query="?durable=true")
        await page.until("iterated.at(-1) === 7")
        assert await page.run("sub.nack(stale); sub.state") == "open", "it has come again"
        seen = await page.run("seen")
        assert [n for place, n in enumerate(seen) if n not in seen[:place]] == [*range(8)]
        assert {n for n in range(8) if seen.count(n) > 1} >= {0, 3, 6}
        assert sorted({*await page.run("iterated")}) == [*range(8)]
        await until(lambda: not any(front.status()["custody_waiting"].values()))
