"""The tables and messages of the paper's figures 3 and 4, written down from its text (IV-C)."""

from __future__ import annotations

from palio_studies.proxy_network import TableState
from palio_studies.proxy_registrations import PaperHierarchy

FIGURE_3 = {"P2": "P1", "P3": "P1", "P4": "P3", "P5": "P3"}
FIGURE_4 = {"P2": "P1", "P3": "P1", "P4": "P1"}


def messages(proxies: PaperHierarchy, what: str, client: str, proxy: str) -> list[str]:
    """What is sent because a client registers or subscribes, in order."""
    before = len(proxies.sent)
    proxies.send(what, "E", client, proxy)
    return [f"{each.what} {each.sender}>{each.target}" for each in proxies.sent[before:]]


def incoming(proxies: PaperHierarchy) -> dict[str, set[str]]:
    tables = {name: set(proxies.table(name, "E")[0]) for name in sorted(proxies.proxies)}
    return {name: found for name, found in tables.items() if found}


def test_figure_3_registrations_go_up_and_down_to_the_one_other_source() -> None:
    proxies = PaperHierarchy(FIGURE_3)
    assert messages(proxies, "REG", "S1", "P2") == ["REG S1>P2", "REG P2>P1"]
    assert incoming(proxies) == {"P1": {"P2"}, "P2": {"S1"}}  # (a)
    told = messages(proxies, "REG", "S2", "P4")
    assert told[:3] == ["REG S2>P4", "REG P4>P3", "REG P3>P1"]
    assert sorted(told[3:]) == ["REG P1>P2", "REG P1>P3", "REG P3>P4"]
    before = {"P1": {"P2", "P3"}, "P2": {"S1", "P1"}}
    assert incoming(proxies) == {**before, "P3": {"P1", "P4"}, "P4": {"S2", "P3"}}  # (b)
    assert messages(proxies, "REG", "S3", "P5") == ["REG S3>P5", "REG P5>P3", "REG P3>P5"]
    below = {"P3": {"P1", "P4", "P5"}, "P4": {"S2", "P3"}, "P5": {"P3", "S3"}}
    assert incoming(proxies) == {**before, **below}  # (c)
    assert proxies.state("P3") == TableState(entries=1, lines=3)
    assert messages(proxies, "REG", "S3", "P5") == ["REG S3>P5"]


def test_figure_4_a_subscription_goes_to_a_source_that_registers_later() -> None:
    """Drawn without what goes down by IV-C.1: by its rule P2 and P4 learn of each other, too."""
    proxies = PaperHierarchy(FIGURE_4)
    messages(proxies, "REG", "S1", "P2")
    assert messages(proxies, "SUB", "R", "P3") == ["SUB R>P3", "SUB P3>P1", "SUB P1>P2"]
    told = messages(proxies, "REG", "S2", "P4")
    assert told[:2] == ["REG S2>P4", "REG P4>P1"]
    assert sorted(told[2:]) == ["REG P1>P2", "REG P1>P4", "SUB P1>P4"]
    assert [proxies.table(name, "E")[1] for name in ("P1", "P2", "P3", "P4")] == [
        ["P3"],
        ["P1"],
        ["R"],
        ["P1"],
    ]


def test_a_subscription_stops_where_all_sources_were_asked_before() -> None:
    proxies = PaperHierarchy(FIGURE_4)
    messages(proxies, "REG", "S1", "P2")
    assert messages(proxies, "SUB", "R1", "P2") == ["SUB R1>P2"]
    assert messages(proxies, "SUB", "R2", "P3") == ["SUB R2>P3", "SUB P3>P1", "SUB P1>P2"]
    assert messages(proxies, "SUB", "R3", "P3") == ["SUB R3>P3"]
    assert messages(proxies, "SUB", "R4", "P4") == ["SUB R4>P4", "SUB P4>P1"]


def test_a_source_is_asked_for_others_though_it_subscribed_first() -> None:
    proxies = PaperHierarchy(FIGURE_4)
    messages(proxies, "SUB", "R1", "P2")
    messages(proxies, "REG", "S1", "P2")
    assert messages(proxies, "SUB", "R2", "P3") == ["SUB R2>P3", "SUB P3>P1", "SUB P1>P2"]


def test_a_sporadic_event_misses_a_subscription_that_stopped_at_a_source() -> None:
    proxies = PaperHierarchy(FIGURE_3)
    messages(proxies, "SUB", "waits", "P4")
    assert proxies.reached("E", "P2") == {"waits"}
    messages(proxies, "REG", "S1", "P5")
    messages(proxies, "SUB", "near", "P5")
    assert proxies.reached("E", "P5") == {"near", "waits"}
    stopped = PaperHierarchy(FIGURE_3)
    messages(stopped, "REG", "S1", "P5")
    messages(stopped, "SUB", "near", "P5")
    assert stopped.reached("E", "P2") == set()
