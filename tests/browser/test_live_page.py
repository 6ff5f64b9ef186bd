"""The page at `/` of a broker, in Chromium, with a network of real brokers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import palio
from palio.server.keyfiles import create_key, load_private_key
from palio.server.run import Running, running
from palio.server.settings import Auth, Broker, Configuration, Http, Listen, Peers
from palio.server.tokens import Claims, sign
from tests.browser.chromium import Chromium, Page, chromium

PICTURES: Final = Path(os.environ.get("PALIO_PICTURES", ""))
"""Where pictures of the page are kept, if anywhere."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


class Network:
    """Brokers in this process, the first with an HTTP port."""

    def __init__(self) -> None:
        self.stacks: list[AsyncExitStack] = []
        self.served: list[Running] = []

    async def add(self, name: str, tmp_path: Path) -> Running:
        near = [self.served[-1].addresses["palio"]] if self.served else []
        configuration = Configuration(
            broker=Broker(name=name, data_dir=str(tmp_path / name)),
            listen=Listen(port=0),
            http=Http(port=None if self.served else 0),
            peers=Peers(urls=tuple(near)),
        )
        stack = AsyncExitStack()
        self.stacks.append(stack)
        self.served.append(await stack.enter_async_context(running(configuration)))
        return self.served[-1]

    @property
    def url(self) -> str:
        return self.served[0].addresses["palio"]


@asynccontextmanager
async def opened(browser: Chromium, tmp_path: Path) -> AsyncIterator[tuple[Network, Page]]:
    """Three brokers in a line, and the page of the first."""
    network = Network()
    try:
        for name in ("b1", "b2", "b3"):
            await network.add(name, tmp_path)
        async with browser.page() as page:
            await page.open(network.served[0].addresses["http"])
            await page.until("document.querySelectorAll('#map g').length === 3")
            await page.until("state.textContent === 'open'")
            yield network, page
            if PICTURES.name:
                PICTURES.mkdir(exist_ok=True)
                name = os.environ["PYTEST_CURRENT_TEST"].split("::")[-1].split(" ")[0]
                (PICTURES / f"{name}.png").write_bytes(await page.picture())
            assert page.complaints == []
    finally:
        for stack in reversed(network.stacks):
            await stack.aclose()


async def test_it_shows_the_network_and_a_broker_that_goes(
    browser: Chromium, tmp_path: Path
) -> None:
    async with opened(browser, tmp_path) as (network, page):
        assert await page.run("broker.textContent") == "b1"
        await page.until("document.querySelectorAll('#map line').length === 2")
        await page.until("health.className === 'good'")
        assert "3 brokers, all reachable" in await page.run("map.getAttribute('aria-label')")
        await network.stacks.pop().aclose()
        await page.until(
            "document.querySelector('[data-broker=b3]').getAttribute('class') === 'away'"
        )
        assert "unreachable: b3" in await page.run("map.getAttribute('aria-label')")


async def test_subscriptions_appear_with_their_parameters(
    browser: Chromium, tmp_path: Path
) -> None:
    async with (
        opened(browser, tmp_path) as (network, page),
        await palio.connect(network.url, name="ann") as client,
    ):
        sub = await client.subscribe(
            "price < :limit", {"limit": 7}, durable_name="orders", ack="manual"
        )
        await page.until("catalogue.innerText.includes('limit = 7')")
        await client.publish({"price": 1}, durable=True)
        await page.until("/orders\\s+1/.test(waiting.innerText)")
        await sub.update(limit=8)
        await page.until("catalogue.innerText.includes('limit = 8')")


async def test_events_come_by_a_filter_whose_sliders_take_effect(
    browser: Chromium, tmp_path: Path
) -> None:
    async with opened(browser, tmp_path) as (network, page):
        await page.run(
            "filter.value = `price < :limit AND note <> ':x'`;"
            "filter.dispatchEvent(new Event('input')); null"
        )
        assert await page.run("document.querySelectorAll('#parameters input').length") == 1
        await submit(page, "subscribe")
        await page.until("state.textContent === 'open'")
        async with await palio.connect(network.url, name="ann") as client:
            await client.publish({"price": 49, "note": ""})
            await page.until("events.textContent.includes('49')")
            await page.run(
                "slider = document.querySelector('#parameters input'); slider.value = 10;"
                "slider.dispatchEvent(new Event('input')); null"
            )
            await page.until("document.querySelector('#parameters output').textContent === '10'")
            async with asyncio.timeout(10):
                while "9.5" not in await page.run("events.textContent"):
                    await client.publish([{"price": 48, "note": ""}, {"price": 9.5, "note": ""}])
            lines = (await page.run("events.textContent")).splitlines()
            assert "9.5" in lines[0]
        await page.run("filter.value = 'price <'; null")
        await submit(page, "subscribe")
        await page.until("refused.textContent.includes('line 1')")


async def test_an_event_is_published_and_traced(browser: Chromium, tmp_path: Path) -> None:
    async with opened(browser, tmp_path) as (network, page):
        far = network.served[2].addresses["palio"]
        async with await palio.connect(far, name="ann") as client:
            sub = await client.subscribe("price < 10")
            await sub.settled()
            await page.run("document.querySelector('[name=trace]').click()")
            await page.until("path.textContent.includes('b1 → b2 → b3')")
            assert "ann: price < 10" in await page.run("path.textContent")
            await page.until("document.querySelectorAll('#map line.traced').length === 2")
            await submit(page, "publish")
            await page.until("path.textContent.includes('1 published')")
            assert (await sub.receive(timeout=10))["price"] == 9.5
        await page.run("document.getElementById('event').value = '{'; null")
        await submit(page, "publish")
        await page.until("unsent.textContent !== ''")


@pytest.mark.parametrize("may_monitor", [True, False])
async def test_a_token_decides_what_it_shows(
    browser: Chromium, tmp_path: Path, may_monitor: bool
) -> None:
    create_key(tmp_path / "signing")
    key = load_private_key(tmp_path / "signing")
    configuration = Configuration(
        broker=Broker(name="b1"),
        listen=Listen(port=0),
        http=Http(port=0),
        auth=Auth(keys=str(tmp_path / "signing.pub")),
    )
    grants: dict[str, Any] = {"allow_publish": "TRUE", "allow_subscribe": "TRUE"}
    grants["monitor"] = may_monitor
    token = sign(Claims("ann", "t1", iat=1, exp=1 << 32, **grants), key)
    async with running(configuration) as served, browser.page() as page:
        await page.open(served.addresses["http"])
        await page.until("health.textContent === 'no access'")
        assert "token" in await page.run("problem.textContent")
        await page.run(
            f"token = document.getElementById('token'); token.value = '{token}';"
            "token.dispatchEvent(new Event('change')); null"
        )
        await page.until("health.textContent === 'ready'")
        await page.until("state.textContent === 'open'")
        await page.until("catalogue.innerText.includes('ann')")
        await page.until(f"document.querySelectorAll('#map g').length === {int(may_monitor)}")
        assert await page.run("problem.textContent") == ""


async def submit(page: Page, form: str) -> None:
    await page.run(f"document.getElementById('{form}').requestSubmit()")


async def test_nothing_is_loaded_from_elsewhere_and_scripts_that_got_in_do_not_run(
    browser: Chromium, tmp_path: Path
) -> None:
    async with opened(browser, tmp_path) as (network, page):
        origin = network.served[0].addresses["http"]
        loaded = await page.run("performance.getEntriesByType('resource').map(({name}) => name)")
        assert loaded
        assert all(each.startswith((origin, "data:")) for each in loaded), loaded
        hostile = json.dumps(
            '"><img src=x onerror="globalThis.hacked = 1"><script>hacked = 1</script>'
        )
        async with await palio.connect(network.url, name="ann") as client:
            await client.subscribe(f"note = '{hostile}'")
            await client.publish({"note": hostile})
            await page.until("catalogue.innerText.includes('onerror')")
            await page.until("events.textContent.includes('onerror')")
        assert await page.run("globalThis.hacked === undefined")


@pytest.mark.parametrize("width", [360, 1280])
async def test_it_fits_and_every_control_has_a_name(
    browser: Chromium, tmp_path: Path, width: int
) -> None:
    async with opened(browser, tmp_path) as (_, page):
        await page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=False,
        )
        assert await page.run("document.documentElement.scrollWidth <= innerWidth")
        tree: list[dict[str, Any]] = (await page.call("Accessibility.getFullAXTree"))["nodes"]
        controls = [
            each
            for each in tree
            if each.get("role", {}).get("value") in ("textbox", "slider", "button", "image")
        ]
        assert len(controls) >= 6
        assert all(each["name"]["value"] for each in controls)


async def test_it_is_painted_within_a_second(browser: Chromium, tmp_path: Path) -> None:
    async with opened(browser, tmp_path) as (_, page):
        paints = await page.run("performance.getEntriesByType('paint').map((e) => e.startTime)")
        assert paints
        assert max(paints) < 1_000


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core, which looks for what keeps people from using a page."""
    npm, to = shutil.which("npm"), tmp_path_factory.mktemp("axe")
    if npm is None:
        pytest.skip("axe-core comes from npm, which is not installed")
    command = [npm, "install", "--prefix", str(to), "axe-core@4"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("npm has no registry with axe-core")
    return (to / "node_modules/axe-core/axe.min.js").read_text()


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(browser: Chromium, tmp_path: Path, axe: str, scheme: str) -> None:
    async with opened(browser, tmp_path) as (_, page):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await page.call("Emulation.setEmulatedMedia", features=[feature])
        await page.run(f"{axe}; null")
        passes, violations = await page.run(
            "axe.run().then(({passes, violations}) => [passes, violations])"
        )
        assert len(passes) > 20
        assert violations == []
