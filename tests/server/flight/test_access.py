"""Who calls is known before anything else is read, and what a call took is given back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as pf
import pytest

from palio.model.filters import FALSE, TRUE
from palio.node.authority import Principal
from palio.server.flight import access
from palio.server.flight.access import Share
from palio.server.server import Server
from tests.server.flight.test_service import COLUMNS, QUOTES, apart, first, flying, put, ticket
from tests.server.fronts import broker
from tests.server.helpers import until
from tests.server.http.test_app import Tokens

SCHEMA = pa.schema([("x", pa.int64())])


def people() -> Tokens:
    return Tokens({name: Principal(name, TRUE, TRUE) for name in ("alice", "bob")})


def bearing(name: str, timeout_s: float | None = None) -> pf.FlightCallOptions:
    headers: Any = [(b"authorization", f"Bearer {name}".encode())]  # bytes, whatever the stubs say
    return pf.FlightCallOptions(timeout=timeout_s, headers=headers)


def calls(client: pf.FlightClient, content: bytes) -> dict[str, Callable[[Any], object]]:
    """Every call that there is, with something in it."""
    descriptor = pf.FlightDescriptor.for_command(content)
    criteria: Any = content  # bytes, whatever the stubs say

    def putting(options: Any) -> None:
        writer, _ = client.do_put(descriptor, SCHEMA, options)
        writer.close()

    def exchanging(options: Any) -> None:
        _, reader = client.do_exchange(descriptor, options)
        reader.read_chunk()

    return {
        "DoGet": lambda options: client.do_get(pf.Ticket(content), options).read_chunk(),
        "DoPut": putting,
        "DoExchange": exchanging,
        "GetFlightInfo": lambda options: client.get_flight_info(descriptor, options),
        "GetSchema": lambda options: client.get_schema(descriptor, options),
        "ListFlights": lambda options: list(client.list_flights(criteria, options)),
        "DoAction": lambda options: list(client.do_action(pf.Action("x", content), options)),
        "ListActions": client.list_actions,
    }


CONTENTS = (b"", b"junk", b'{"more": 1}', json.dumps({"columns": COLUMNS}).encode())


async def nothing_is_held(server: Server) -> None:
    await until(lambda: not server.node.status()["sessions"])
    assert not server.node.status()["subscriptions"]


@pytest.mark.parametrize("content", [*CONTENTS, b'{"parameters":{' + b'"0":[[]],' * 100_000])
async def test_without_a_token_nothing_of_a_call_is_read(content: bytes) -> None:
    def work(address: str) -> None:
        with pf.connect(address) as client:
            for name, call in calls(client, content).items():
                for options in (None, bearing("mallory")):
                    with pytest.raises((pf.FlightUnauthenticatedError, OSError)) as caught:
                        call(options)
                    said = str(caught.value)
                    assert "NotAuthenticated: " in said, name
                    assert "Traceback" not in said
                    assert "ticket" not in said

    async with broker(authority=people()) as server, flying(server) as address:
        await apart(work, address)
        await nothing_is_held(server)


@pytest.mark.parametrize("content", CONTENTS)
async def test_no_error_tells_where_in_the_code(content: bytes) -> None:
    def work(address: str) -> list[str]:
        said = []
        with pf.connect(address) as client:
            for call in calls(client, content).values():
                try:
                    call(bearing("alice", timeout_s=1.0))
                except (pf.FlightError, pa.ArrowException, OSError) as error:
                    said.append(str(error))
        return said

    async with broker(authority=people()) as server, flying(server) as address:
        said = await apart(work, address)
        await nothing_is_held(server)
    assert len(said) >= 5
    for text in said:
        assert "Traceback" not in text
        assert ".py" not in text


async def test_a_call_that_nobody_waits_for_is_given_back() -> None:
    def work(address: str) -> int:
        late = 0
        with pf.connect(address) as client:
            readers = []
            for number in range(40):
                asked = ticket("i = -1", columns=COLUMNS if number % 2 else {})
                try:
                    readers.append(client.do_get(asked, pf.FlightCallOptions(timeout=0.05)))
                    readers[-1].read_chunk()
                except pf.FlightTimedOutError:
                    late += 1
        return late

    async with broker() as server, flying(server) as address:
        assert await apart(work, address) == 40
        await nothing_is_held(server)
        with await apart(pf.connect, address) as client:
            reader = await apart(client.do_get, ticket("TRUE", columns=COLUMNS))
            await apart(put, client, QUOTES)
            assert (await apart(first, reader))["symbol"] == ["IBM", "MSFT", "IBM"]
            reader.cancel()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three places of a kind, and two of a principal."""
    for method, share in access.SHARES.items():
        small = Share(share.name, 3, 2, share.limit)
        monkeypatch.setitem(access.SHARES, method, small)


@pytest.mark.usefixtures("few")
async def test_one_principal_does_not_take_the_streams_of_others() -> None:
    def work(address: str) -> None:
        with pf.connect(address) as client:
            asked = ticket("TRUE", columns=COLUMNS)
            for _ in range(4):  # one that fails takes no place
                with pytest.raises(pf.FlightServerError, match="ParseError"):
                    client.do_get(ticket("x <"), bearing("alice")).read_chunk()
            alices = [client.do_get(asked, bearing("alice")) for _ in range(2)]
            assert all(len(reader.schema) == 6 for reader in alices)
            with pytest.raises(pf.FlightUnavailableError, match="MAX_STREAMS_EACH"):
                client.do_get(asked, bearing("alice")).read_chunk()
            bobs = client.do_get(asked, bearing("bob"))
            assert len(bobs.schema) == 6
            with pytest.raises(pf.FlightUnavailableError, match=r"3 streams.*MAX_STREAMS\)"):
                client.do_get(asked, bearing("bob")).read_chunk()
            assert put(client, QUOTES, options=bearing("alice"))
            for reader in (*alices, bobs):
                reader.cancel()

    async with broker(authority=people()) as server, flying(server) as address:
        await apart(work, address)
        await nothing_is_held(server)


@pytest.mark.usefixtures("few")
async def test_publications_at_once_have_a_limit_too() -> None:
    def work(address: str) -> None:
        with pf.connect(address) as client:
            nothing = pf.FlightDescriptor.for_command(b"")

            def begun(name: str) -> Any:
                writer, answers = client.do_put(nothing, QUOTES.schema, bearing(name))
                writer.write_batch(QUOTES)
                answers.read()  # type: ignore[attr-defined]  # the stubs take it for another
                return writer

            open_ones = [begun("alice"), begun("alice")]
            with pytest.raises(pf.FlightUnavailableError, match="MAX_PUTS_EACH"):
                put(client, QUOTES, options=bearing("alice"))
            open_ones.append(begun("bob"))
            with pytest.raises(pf.FlightUnavailableError, match=r"MAX_PUTS\)"):
                put(client, QUOTES, options=bearing("bob"))
            for writer in open_ones:
                writer.close()

    async with broker(authority=people()) as server, flying(server) as address:
        await apart(work, address)
        await nothing_is_held(server)


@pytest.mark.usefixtures("few")
async def test_where_nobody_shows_a_token_all_places_are_everyones() -> None:
    def work(address: str) -> None:
        with pf.connect(address) as client:
            asked = ticket("TRUE", columns=COLUMNS)
            readers = [client.do_get(asked) for _ in range(3)]
            assert all(len(reader.schema) == 6 for reader in readers)
            with pytest.raises(pf.FlightUnavailableError, match=r"MAX_STREAMS\)"):
                client.do_get(asked).read_chunk()
            for reader in readers:
                reader.cancel()

    async with broker() as server, flying(server) as address:
        await apart(work, address)


async def test_a_principal_with_no_grant_publishes_nothing_however_it_is_put() -> None:
    mute = Tokens({"mute": Principal("mute", FALSE, FALSE)})
    batches = [
        (pa.record_batch({"a": pa.nulls(10**8)}), "MAX_CHUNK_ROWS"),
        (QUOTES, "NotPermitted"),
    ]

    def work(address: str) -> None:
        with pf.connect(address) as client:
            for batch, said in batches:
                with pytest.raises(pf.FlightError, match=said):
                    put(client, batch, options=bearing("mute"))

    async with broker(authority=mute) as server, flying(server) as address:
        await apart(work, address)
        await nothing_is_held(server)
        assert server.node.status()["published"] == 0
