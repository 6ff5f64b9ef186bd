from __future__ import annotations

from itertools import pairwise

import pyarrow as pa

from palio.model.parcels import Parcel
from palio.multicast.datagrams import Datagram
from palio.simulation.agenda import US, Agenda
from palio.simulation.medium import Medium, Port, Weather
from palio.simulation.randomness import Randomness

LATENCY_US = 5_000
COUNT = 2_000


class Air:
    """Three brokers in group 0 of plan 7, and the numbers that each heard."""

    def __init__(self, seed: int = 1, weather: Weather | None = None) -> None:
        self.agenda = Agenda()
        self.medium = Medium(
            self.agenda, Randomness(seed), latency_s=LATENCY_US / US, weather=weather
        )
        self.heard: dict[str, list[int]] = {}
        self.ports = {name: self.start(name) for name in ("b1", "b2", "b3")}

    def start(self, name: str) -> Port:
        heard = self.heard[name] = []
        port = self.medium.port(name)
        port.listener = lambda datagram: heard.append(datagram.number)
        port.tune(7, (0, 3))
        return port

    def cast(self, number: int, *, sender: str = "b1", plan: int = 7, group: int = 0) -> None:
        self.ports[sender].cast(Datagram(sender, 1, plan, group, number, bytes(12)))

    def cast_many(self) -> None:
        """Many, a tenth of a millisecond apart."""
        for number in range(COUNT):
            self.agenda.run(number * 100)
            self.cast(number)
        self.agenda.run()


def test_what_is_cast_reaches_all_others_that_have_joined_the_group_after_the_latency() -> None:
    air = Air()
    air.cast(1)
    air.cast(2, group=1)
    air.cast(3, plan=8)
    air.cast(4, sender="b2", group=3)
    air.agenda.run(LATENCY_US - 1)
    assert air.heard == {"b1": [], "b2": [], "b3": []}
    air.agenda.run(LATENCY_US)
    assert air.heard == {"b1": [4], "b2": [1], "b3": [1, 4]}


def test_groups_are_those_of_a_plan_and_others_stay_as_they_are() -> None:
    air = Air()
    air.ports["b2"].tune(8, (0,))
    air.cast(1)
    air.cast(2, plan=8)
    air.agenda.run()
    air.ports["b2"].tune(7, ())
    air.cast(3)
    air.cast(4, plan=8)
    air.agenda.run()
    assert air.heard["b2"] == [1, 2, 4]
    assert air.heard["b3"] == [1, 3]


def test_who_leaves_a_group_hears_nothing_of_what_is_on_its_way() -> None:
    air = Air()
    air.cast(1)
    air.ports["b2"].tune(7, (3,))
    air.agenda.run()
    assert air.heard == {"b1": [], "b2": [], "b3": [1]}


def test_nothing_reaches_the_next_life_of_a_broker_that_was_sent_to_the_last() -> None:
    air = Air()
    air.cast(1)
    last = air.heard["b2"]
    air.medium.leave("b2")
    air.start("b2")
    air.cast(2)
    air.agenda.run()
    assert last == []
    assert air.heard["b2"] == [2]
    assert air.heard["b3"] == [1, 2]


def test_copies_are_lost_by_themselves() -> None:
    air = Air(weather=Weather(loss=0.2))
    air.cast_many()
    two, three = set(air.heard["b2"]), set(air.heard["b3"])
    for heard in (two, three):
        assert 300 < COUNT - len(heard) < 500
    assert 40 < COUNT - len(two | three) < 140


def test_copies_are_late_or_doubled_which_none_hears() -> None:
    air = Air(weather=Weather(doubled=0.1, late=0.1))
    air.cast_many()
    for name in ("b2", "b3"):
        heard = air.heard[name]
        assert sorted(heard) == [*range(COUNT)]
        assert 120 < air.ports[name].opener.dropped["replayed"] < 300
        assert 50 < sum(one > other for one, other in pairwise(heard)) < 500


def test_a_piece_that_is_lost_is_lost_with_its_whole_datagram() -> None:
    air = Air(weather=Weather(loss=0.2))
    parcel = Parcel.of("p", pa.record_batch({"text": ["a" * 5_000]})).stamped("p", 1, 7)
    for number in range(100):
        air.ports["b1"].cast(Datagram("b1", 1, 7, 0, number, bytes(12), parcel))
    air.agenda.run()
    assert 20 < len(air.heard["b2"]) < 60


def test_the_same_seed_does_the_same() -> None:
    heard = []
    for seed in (1, 1, 2):
        air = Air(seed, Weather(loss=0.2, doubled=0.1, late=0.1))
        air.cast_many()
        heard.append(air.heard)
    assert heard[0] == heard[1] != heard[2]


def test_the_medium_gets_worse_and_better() -> None:
    air = Air()
    air.medium.weather = Weather(loss=1.0)
    air.cast(1)
    air.medium.weather = Weather()
    air.cast(2)
    air.agenda.run()
    assert air.heard["b2"] == [2]


def test_a_deaf_broker_hears_nothing_and_still_casts() -> None:
    air = Air()
    air.cast(1)
    air.medium.deafen("b2")
    air.cast(2, sender="b2")
    air.agenda.run()
    assert air.heard == {"b1": [2], "b2": [], "b3": [1, 2]}
    air.medium.undeafen("b2")
    air.medium.undeafen("b3")  # nothing was wrong with it
    air.cast(3)
    air.agenda.run()
    assert air.heard["b2"] == [3]


def test_who_is_cut_off_from_another_still_hears_the_third() -> None:
    air = Air()
    air.medium.cut("b2", "b1")
    air.cast(1)
    air.cast(2, sender="b3")
    air.agenda.run()
    assert air.heard == {"b1": [2], "b2": [2], "b3": [1]}
    air.medium.heal("b1", "b2")
    air.cast(3)
    air.agenda.run()
    assert air.heard["b2"] == [2, 3]
