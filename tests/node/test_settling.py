"""`Settling`: a question is answered once all that it takes have answered."""

from __future__ import annotations

from collections.abc import Callable

from palio.node.authority import Principal
from palio.node.limits import SHOWN_CHARS
from palio.node.registry import Registry
from palio.node.sessions import Budget, Session
from palio.node.settling import Settling
from palio.protocol.messages import Fact
from palio.protocol.streams import Stream
from palio.routing.protocol import Peer


class Desk:
    """The three that are asked, each answering when told to."""

    def __init__(self) -> None:
        self.registry = Registry("b1", (Fact("b2", 1, "links"), Fact("b3", 1, "links")))
        self.asked: list[tuple[Peer, int]] = []
        self.disk: list[Callable[[], None]] = []
        self.told: list[tuple[str, ...]] = []
        self.settling = Settling(
            self.registry, lambda peer, wave: self.asked.append((peer, wave)), self.disk.append
        )
        peer = Peer.session("s1")
        self.session = Session(
            "s1", peer, Principal("p"), 1, Stream(), Budget(1_000), owner="p", publisher="p/1"
        )

    def ask(self) -> None:
        self.settling.when_in_force(self.session, self.told.append)

    def settled(self) -> None:
        """The registry answers what it can."""
        settled, self.registry.settled = self.registry.settled, []
        for wave, unreached in settled:
            self.settling.answered(wave, unreached)


def test_the_disk_the_registry_and_the_tables_are_asked_one_after_the_other() -> None:
    desk = Desk()
    desk.ask()
    assert (len(desk.settling), len(desk.disk), desk.asked) == (1, 1, [])
    desk.disk[0]()
    assert (len(desk.settling), desk.asked) == (2, [])
    desk.settled()
    ((peer, wave),) = desk.asked
    assert peer == desk.session.peer
    desk.settling.answered(wave, ("b3", "b2"))
    assert desk.told == [("b2", "b3")]
    assert len(desk.settling) == 0
    assert not desk.session.waves


def test_of_names_that_nobody_has_heard_of_one_is_told_and_not_all_of_it() -> None:
    desk = Desk()
    for unreached in (("x" * 999, "y"), ("x", "b3")):
        desk.settling.when_through(desk.session.peer, desk.told.append)
        desk.settling.answered(desk.asked[-1][1], unreached)
    assert desk.told == [("x" * SHOWN_CHARS,), ("b3",)]


def test_nobody_waits_for_what_an_ended_session_has_asked() -> None:
    desk = Desk()
    desk.ask()
    desk.ask()
    desk.settling.when_known(desk.told.append)
    desk.settling.end(desk.session)
    assert len(desk.settling) == 1
    desk.disk[0]()
    desk.settled()
    assert desk.asked == []
    assert desk.told == [("b2", "b3")]  # there is no way to them
