from __future__ import annotations

import asyncio

import pytest

from palio.errors import InvalidInput, Unreachable
from palio.simulation.topologies import ring
from palio.testing import Network, VirtualLoop
from tests.client.virtual import in_virtual_time


def test_virtual_time_takes_no_time_and_threads_are_waited_for() -> None:
    async def main() -> tuple[float, int]:
        await asyncio.sleep(1e6)
        return asyncio.get_running_loop().time(), await asyncio.to_thread(lambda: 7)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == (1e6, 7)


async def test_a_network_runs_in_real_time_too() -> None:
    async with Network("line:2", delay_s=0) as net:
        alice, bob = await net.connect("b1"), await net.connect("b2")
        heard = await bob.subscribe("x > 0")
        await heard.settled()
        await alice.publish({"x": 1})
        assert dict(await heard.receive()) == {"x": 1}


@in_virtual_time
async def test_a_link_that_is_cut_is_gone_until_it_is_healed() -> None:
    async with Network(ring(3)) as net:
        alice, bob = await net.connect("b1"), await net.connect("b3")
        heard = await bob.subscribe("x > 0")
        await heard.settled()
        net.cut("b1", "b3")
        await asyncio.sleep(60)
        await alice.publish({"x": 1})  # by the other way round
        assert dict(await heard.receive()) == {"x": 1}
        net.heal("b1", "b3")
        await asyncio.sleep(60)
        await alice.publish({"x": 2})
        assert dict(await heard.receive()) == {"x": 2}


@in_virtual_time
async def test_delays_are_those_of_the_link() -> None:
    async with Network(delay_s=0) as net:
        client = await net.connect("b1", name="far")
        net.delay("far", "b1", 2.5)
        before = asyncio.get_running_loop().time()
        await client.publish({"x": 1})
        assert asyncio.get_running_loop().time() - before == pytest.approx(5.0)


@in_virtual_time
async def test_a_killed_broker_loses_what_was_not_written() -> None:
    async with Network(disk_s=5, delay_s=0) as net:
        alice, bob = await net.connect("b1", name="alice"), await net.connect("b1", name="bob")
        kept = await bob.subscribe("EXISTS x", durable_name="kept")
        publishing = alice.publish_nowait({"x": 1}, durable=True)
        await asyncio.sleep(1)
        assert not net.store("b1").held()
        net.cut("alice", "b1")  # so that it does not publish again
        net.kill("b1")
        net.restart("b1")
        await asyncio.sleep(60)
        assert not net.store("b1").held()
        assert not publishing.done()
        net.heal("alice", "b1")
        assert (await publishing).level == "durable"
        assert dict(await kept.receive()) == {"x": 1}


@in_virtual_time
async def test_a_link_that_the_broker_which_dialled_gives_up_comes_back() -> None:
    async with Network("line:2") as net:
        net.spoils = lambda sender, _message: sender == "b2"  # b1 cannot read that it is welcome
        net.drop("b1", "b2")
        await asyncio.sleep(5)
        net.spoils = lambda _sender, _message: False
        await asyncio.sleep(1)
        assert net.node("b1").status()["peers"]["b2"]["up"]


@in_virtual_time
async def test_settings_of_a_network_can_be_changed_while_it_runs() -> None:
    async with Network(delay_s=0, disk_s=0) as net:
        client = await net.connect("b1")
        heard = await client.subscribe("x > 0", durable_name="kept")
        await heard.settled()
        net.delay_s, net.disk_s = 1.0, 3.0
        before = asyncio.get_running_loop().time()
        await client.publish({"x": 1}, durable=True)
        assert asyncio.get_running_loop().time() - before == pytest.approx(5.0)
        assert (net.delay_s, net.disk_s) == (1.0, 3.0)


@in_virtual_time
async def test_faults_have_names() -> None:
    async with Network("line:2") as net:
        with pytest.raises(InvalidInput, match="b1, b2"):
            net.kill("b3")
        net.kill("b1")
        net.kill("b1")
        with pytest.raises(InvalidInput, match="restart"):
            net.node("b1")
        with pytest.raises(Unreachable, match="b1: nobody listens there"):
            _client = await net.connect("b1")
        assert {broker for broker, _ in net.reports} <= {"b1", "b2"}
