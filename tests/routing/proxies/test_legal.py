"""Who may say what, and that nothing depends on the hash seed."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any, Final

import pytest

from palio.language.parsing import parse_filter
from palio.model.row_parcels import RowParcel
from palio.routing.protocol import IllegalMessage, Peer
from palio.routing.proxies.messages import (
    MAX_BUNDLE,
    Alive,
    Bundle,
    Dereg,
    Drop,
    Encapsulated,
    Merged,
    ProxyControl,
    Reg,
    Sub,
    Unsub,
    Wish,
)
from palio.routing.proxies.router import Proxies
from tests.routing.proxy_network import ALL, E, above

# --- illegal messages ---

CLIENT: Final = Peer.client("C")
CHILD: Final = Peer.broker("P3")
PARENT: Final = Peer.master("P1")

ILLEGAL: Final[list[tuple[Peer, Any, str]]] = [
    (Peer.client("stranger"), Reg(E), "not attached"),
    (CLIENT, Merged(E, (Wish(ALL),), 1), "may not send Merged"),
    (CLIENT, Drop(E, 0), "may not send Drop"),
    (CHILD, Drop(E, 0), "may not send Drop"),
    (CHILD, Sub(E, ALL), "may not send Sub"),
    (PARENT, Sub(E, ALL), "may not send Sub"),
    (CHILD, Alive(), "may not send Alive"),
    (PARENT, Alive(), "may not send Alive"),
    (CLIENT, Bundle((Bundle(()),)), "may not send Bundle"),  # type: ignore[arg-type] # the point
    (CLIENT, Bundle((Reg(E),) * (MAX_BUNDLE + 1)), "MAX_BUNDLE"),
    (CLIENT, "hello", "may not send str"),
    (CLIENT, Reg(("y", "x")), "sorted tuple"),
    (CLIENT, Reg(("x", "x")), "sorted tuple"),
    (CLIENT, Reg(("",)), "sorted tuple"),
    (CLIENT, Reg(("$seq", "x")), "sorted tuple"),
    (CLIENT, Reg(tuple(sorted(f"a{n}" for n in range(4097)))), "MAX_ATTRIBUTES"),
    (CLIENT, Encapsulated("C", 0, {"": 1}), "empty name"),
    (CLIENT, Sub(E, parse_filter("x > :low")), "bind them first"),
    (CLIENT, Sub(E, parse_filter("x > 1 AND y > 1")), "reads y"),
    (CLIENT, Sub(E, ALL, lifetime=0), "positive number of seconds"),
    (CLIENT, Sub(E, ALL, lifetime=math.nan), "positive number of seconds"),
    (CLIENT, Sub(E, ALL, count=0), "at least 1"),
    (CHILD, Merged(E, (), 1), "asks for nothing"),
    (CHILD, Merged(E, (Wish(ALL), Wish(above(1))), 1), "merged into one"),
    (CHILD, Merged(E, (Wish(ALL), Wish(ALL, count=0)), 1), "at least 1"),
    (PARENT, Reg(E, 99), "never given"),
    (PARENT, Dereg(E, 99), "never given"),
    (PARENT, Merged(E, (Wish(ALL),), 99), "never given"),
    (PARENT, Unsub(E, 99), "never given"),
    (PARENT, Drop(E, 99), "never given"),
]


@pytest.mark.parametrize(("sender", "message", "reason"), ILLEGAL)
def test_an_illegal_message_is_refused_and_changes_nothing(
    sender: Peer, message: ProxyControl, reason: str
) -> None:
    proxy = Proxies("P2")
    for peer in (CLIENT, CHILD, PARENT):
        proxy.attach(peer)
    proxy.receive(CLIENT, Reg(("z",)))
    before = proxy.table()
    with pytest.raises(IllegalMessage, match=reason):
        proxy.receive(sender, message)
    if not isinstance(message, Bundle | str):
        with pytest.raises(IllegalMessage, match=reason):
            proxy.receive(sender, Bundle((Reg(E), message)))
    assert proxy.table() == before
    assert proxy.wake is None
    assert proxy.advance(1.0) == []


def test_events_of_a_stranger_are_refused() -> None:
    with pytest.raises(IllegalMessage, match="not attached"):
        Proxies("P2").route(CLIENT, RowParcel("C", [{"x": 1}]))


@pytest.mark.parametrize("message", [Dereg(E), Unsub(E), Alive()])
def test_withdrawing_what_is_not_there_is_ignored(message: ProxyControl) -> None:
    proxy = Proxies("P2")
    for peer in (CLIENT, PARENT):
        proxy.attach(peer)
    assert proxy.receive(CLIENT, message) == []
    assert proxy.table() == []


# --- determinism ---

_TRACE: Final = """
from tests.routing.test_proxies_storm import Storm
storms = [Storm(seed) for seed in range(5)]
for storm in storms:
    storm.run()
    print([(name, sorted(c.heard, key=repr)) for name, c in storm.network.clients.items()])
    print(storm.random.random(), storm.network.crossed)
"""


@pytest.mark.parametrize("hash_seeds", [("1", "2")])
def test_a_run_does_not_depend_on_the_hash_seed(hash_seeds: tuple[str, str]) -> None:
    one, other = (
        subprocess.run(
            [sys.executable, "-c", _TRACE],
            env={"PYTHONHASHSEED": each, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
        ).stdout
        for each in hash_seeds
    )
    assert one == other
