from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
import uvloop

from palio.errors import InvalidConfiguration
from palio.node.effects import Close, Dial, Effect, Moment, Send, StopDialing
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Bye, Hello, Message, Ping
from palio.server import dialing
from palio.server.dialing import BACKOFF_MAX_S, BACKOFF_MIN_S, backoff
from tests.server.helpers import Peer, Scripted, serving, until


def test_pauses_grow_up_to_the_longest_and_differ() -> None:
    longest = [backoff(failures, 1.0) for failures in range(1, 40)]
    assert longest == sorted(longest)
    assert longest[0] == BACKOFF_MIN_S
    assert longest[-1] == BACKOFF_MAX_S
    for failures in (1, 5, 1_000):
        assert backoff(failures, 0.0) == backoff(failures, 1.0) / 2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "BACKOFF_MIN_S", 0.001)
    monkeypatch.setattr(dialing, "BACKOFF_MAX_S", 0.01)


@pytest.mark.usefixtures("hasty")
async def test_a_neighbour_is_dialled_until_it_answers_and_again_when_it_is_lost() -> None:
    near, far = Scripted(), Scripted()
    port = free_port()
    async with serving(near) as (server, _):
        server.dial(f"palio://127.0.0.1:{port}")
        await until(lambda: server.traffic.dial_failures >= 2)
        async with serving(far) as (other, _):
            await other.listen("127.0.0.1", port)
            (greeting,) = await far.called("receive")
            assert isinstance(greeting[2], Hello)
            assert await near.called("dial") == [("dial", 1, "")]
            await near.called("receive")  # the answer
        await near.called("lost")
        async with serving(again := Scripted()) as (other, _):
            await other.listen("127.0.0.1", port)
            await again.called("receive")
            *_, (_, _, peer) = await near.called("dial", 2)
            assert peer == "scripted"  # it knows by now who answers there
        assert server.traffic.dialled >= 2


@pytest.mark.usefixtures("hasty")
async def test_a_link_that_was_one_too_many_is_tried_again_when_another_is_lost() -> None:
    class Refusing(Scripted):
        def receive(
            self, link: int, message: Message, at: Moment, *, up_to: int | None = None
        ) -> Sequence[Effect]:
            if isinstance(message, Hello) and message.role == "broker":
                self._note("refused", link)
                return [Send(link, Bye("duplicate")), Close(link, "duplicate")]
            return super().receive(link, message, at, up_to=up_to)

    far = Refusing()
    async with serving(far) as (_, address), serving(Scripted()) as (server, own):
        server.dial(f"palio://127.0.0.1:{address[1]}")
        await far.called("refused")
        other = await Peer.connect(own)
        other.send(Hello("broker", "b9", PROTOCOL_VERSION))
        await until(
            lambda: any(getattr(each, "is_broker", False) for each in server.links.values())
        )
        assert len(await far.called("refused")) == 1
        other.close()
        await far.called("refused", 2)


async def test_tls_without_anybody_who_vouches_is_refused() -> None:
    async with serving(Scripted()) as (server, _):
        with pytest.raises(InvalidConfiguration, match=r"set tls\.ca"):
            server.dial("palios://127.0.0.1:1")


@pytest.mark.usefixtures("hasty")
async def test_a_neighbour_that_does_not_speak_tls_is_a_failure_like_any_other() -> None:
    far = Scripted(lambda link, _: [Send(link, Ping())])
    trusting = ssl.create_default_context()
    async with (
        serving(far) as (_, far_address),
        serving(Scripted(), dialling=trusting) as (
            server,
            _,
        ),
    ):
        server.dial(f"palios://127.0.0.1:{far_address[1]}")
        await until(lambda: server.traffic.dial_failures >= 2)
        assert server.traffic.dialled == 0


@pytest.mark.usefixtures("hasty")
async def test_a_node_has_an_address_dialled_until_it_wants_that_no_more() -> None:
    wishes: list[Effect] = []
    near, far = Scripted(lambda _link, _message: [wishes.pop()] if wishes else ()), Scripted()
    port = free_port()
    url = f"palio://127.0.0.1:{port}"
    async with serving(near) as (server, _):
        front = server.connect_local(lambda _: None)

        def wish(effect: Effect) -> None:
            wishes.append(effect)
            server.from_front(front, Ping())

        wish(Dial(url, "scripted"))
        assert (await near.called("unreachable"))[0][1] == url
        async with serving(far) as (other, _):
            await other.listen("127.0.0.1", port)
            await far.called("receive")
            assert (await near.called("dial"))[0][2] == "scripted"
            wish(StopDialing(url))
        await near.called("lost")
        failures = server.traffic.dial_failures
        wish(Dial("palios://127.0.0.1:1", ""))
        await until(lambda: near.calls[-1][:2] == ("unreachable", "palios://127.0.0.1:1"))
        assert "tls.ca" in near.calls[-1][2]
        assert server.traffic.dial_failures == failures


@pytest.mark.usefixtures("hasty")
async def test_what_is_no_name_of_a_machine_is_a_failure_like_any_other() -> None:
    near, hosts = Scripted(), ("n" * 64, "a..b", "nul\0")
    async with serving(near) as (server, _):
        for host in hosts:
            server.dial(f"palio://{host}:7400")
        await until(
            lambda: (
                {call[1] for call in near.calls if call[0] == "unreachable"}
                == {f"palio://{host}:7400" for host in hosts}
            )
        )


Loops: TypeAlias = Callable[[], asyncio.AbstractEventLoop]
on_both_loops = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop]
)


@on_both_loops
def test_a_connection_whose_dialer_is_stopped_as_it_is_made_is_lost(loop_factory: Loops) -> None:
    """uvloop closes it, and tells it nothing."""

    class Rash(Scripted):
        """It wants no more to be dialled what has just been dialled."""

        def dial(self, link: int, *given: Any) -> Sequence[Effect]:
            return [*super().dial(link, *given), StopDialing(given[-1])]

    async def play() -> None:
        near, far, failed = Rash(), Scripted(), list[dict[str, Any]]()
        asyncio.get_running_loop().set_exception_handler(lambda _, what: failed.append(what))
        async with serving(far) as (_, address), serving(near) as (server, _):
            server.dial(f"palio://127.0.0.1:{address[1]}")
            assert await near.called("dial") == [("dial", 1, "")]
            await near.called("lost")
            await far.called("lost")
            assert (server.connections, server.limiter.taken, server.host.links) == (0, 0, {})
            server.dial(f"palio://127.0.0.1:{address[1]}")
            await near.called("dial", 2)
        assert failed == []

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(play())


@on_both_loops
def test_an_address_where_nobody_answers_takes_no_place(loop_factory: Loops) -> None:
    async def play() -> None:
        async with serving(Scripted()) as (server, _):
            server.dial(f"palio://127.0.0.1:{free_port()}")
            await until(lambda: server.traffic.dial_failures >= 1)
            assert (server.limiter.taken, server.traffic.late) == (0, 0)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(play())
