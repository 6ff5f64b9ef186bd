from __future__ import annotations

import asyncio
import io
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import palio
from palio.cli import pub
from palio.cli.main import INTERRUPTED
from palio.cli.reporting import print_status
from palio.cli.top import Sample, Screen, _sample, figures
from palio.cli.topology import _conclusion, _hop, _tree
from palio.errors import Unreachable
from palio.server.keyfiles import create_key, load_private_key
from palio.server.tokens import Claims, sign
from palio.testing import run as run_virtually
from tests.cli.brokers import PATIENCE_S, broker, process
from tests.cli.helpers import Palio


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Two linked brokers."""
    with (
        broker("b1", tmp_path_factory.mktemp("b1")) as one,
        broker("b2", tmp_path_factory.mktemp("b2"), one) as two,
    ):
        with palio.SyncClient(one) as client:
            while not client.admin.query("status")["peers"].get("b2", {}).get("up"):
                pass
        yield [one, two]


@pytest.fixture
def listener(urls: list[str]) -> Iterator[palio.SyncClient]:
    """A client of the second broker."""
    with palio.SyncClient(urls[1], name="ann") as client:
        yield client


# --- topology ---


def test_a_topology_is_a_tree(run: Palio, urls: list[str], listener: palio.SyncClient) -> None:
    listener.subscribe("y > 5", durable_name="high")
    listener.settled()
    assert run("topology", "--broker", urls[0]).out.splitlines() == [
        "b1",
        "└── b2",
        "          keeps events for ann/high",
    ]
    assert run("topology", "--broker", urls[1], "--json").document["asked"] == "b2"


def test_a_broker_that_is_gone_is_retired(run: Palio) -> None:
    with broker("b1", peer_grace_s=0.1) as one, palio.SyncClient(one) as client:

        def reachable() -> dict[str, bool]:
            found = client.admin.query("topology")["brokers"]
            return {name: each["reachable"] for name, each in found.items()}

        with broker("b2", None, one), broker("b3", None, one):
            while sum(reachable().values()) < 3:
                pass
            refused = run("broker", "remove", "b2", "--broker", one)
            assert refused.status == 2
            assert "b2' is not gone" in refused.err
        while sum(reachable().values()) > 1:
            pass
        retired = run("broker", "remove", "b2", "--broker", one)
        assert retired.status == 2
        assert "not in force beyond b3" in retired.err
        retired = run("broker", "remove", "b3", "--broker", one, "--json")
        assert json.loads(retired.out) == {"removed": "b3"}
        assert reachable() == {"b1": True}
        with broker("b2", None, one):  # it comes back in spite of this
            while sum(reachable().values()) < 2:
                pass
        while sum(reachable().values()) > 1:
            pass
        assert (
            run("broker", "remove", "b2", "--broker", one).out
            == "b2 is gone for good; all others know.\n"
        )
        assert reachable() == {"b1": True}


def topology_of(**links: str) -> dict[str, Any]:
    return {
        name: {
            "links": to.split(),
            "parent": "c" if name == "a" else "",
            "reachable": not name.startswith("far"),
            "found": ["c"] if name == "b" else [],
            "durable_subscriptions": ["ann/low"] if name == "b" else [],
            "multicast": "joined" if name == "d" else "",
            "leaving": False,
        }
        for name, to in links.items()
    }


def test_links_beside_the_tree_and_brokers_out_of_reach_are_shown() -> None:
    ring = topology_of(a="b c", b="a c", c="b a d", d="c far1", far1="d", far2="")
    assert list(_tree("a", ring)) == [
        "a  below c",
        "├── b",
        "│         keeps events for ann/low",
        "└── c",
        "    └── d  joined",
        "also linked: b - c",
        "found for links that are lost: b - c",
        "far1  not reachable",
        "far2  not reachable",
    ]


# --- trace ---


def test_a_trace_shows_groups_and_who_hears_by_links() -> None:
    lists: dict[str, list[str]] = {name: [] for name in ("matched", "kept_for", "durable")}
    uses = [
        {"group": 3, "to": ["b2", "b4"], "in_vain": ["b3"]},
        {"group": 0, "to": ["b5"], "in_vain": []},
    ]
    hop = {"path": ["b1"], "sessions": [], "forwards": ["b2"], **lists}
    assert list(
        _hop(hop | {"multicast": {"groups": uses, "by_links": ["b6"]}}, is_addressed=True)
    ) == [
        "b1",
        "    by group 3 to b2, b4; in vain to b3",
        "    by group 0 to b5",
        "    by links to b6",
    ]
    assert list(_hop(hop | {"multicast": None})) == ["b1", "    sent on to b2"]


def test_a_trace_says_who_would_hear(
    run: Palio, urls: list[str], listener: palio.SyncClient
) -> None:
    listener.subscribe("traced < :top", {"top": 10})
    listener.subscribe("traced = 1", durable_name="ones")
    listener.settled()
    heard = run("trace", '{"traced": 1}', "--broker", urls[0])
    assert heard.status == 0
    assert heard.out.splitlines() == [
        "b1",
        "    if durable, kept for ann/ones",
        "    sent on to b2",
        "b1 > b2",
        "    received by ann: traced < :top, :top = 10",
        "    received by ann/ones: traced = 1",
    ]
    assert run("trace", '{"traced": 1}', "--broker", urls[0], "--json").document["received"] is True


def test_a_trace_says_that_nobody_listens(run: Palio, urls: list[str]) -> None:
    unheard = run("trace", '{"unheard": 2}', "--broker", urls[0])
    assert (unheard.status, unheard.out.splitlines()) == (
        1,
        ["b1", "    stops here: nothing matches", "no receivers"],
    )
    assert run("trace", '{"x": 1}\n{"x": 2}', "--broker", urls[0]).status == 2


def test_a_broker_that_does_not_answer_a_trace_is_named() -> None:
    (line,) = _hop({"broker": "b3", "unreachable": True})
    assert line.startswith("b3: not reachable")


def test_a_broker_that_withholds_its_part_of_a_trace_is_named() -> None:
    (line,) = _hop({"broker": "b3", "path": ["b1", "b2", "b3"], "withheld": True})
    assert line == "b3: withheld its answer; b2 has no grant `monitor` there"


def test_a_traced_event_that_comes_back_is_shown() -> None:
    (line,) = _hop({"broker": "b1", "path": ["b1", "b2", "b1"], "loop": True})
    assert line == "b1 > b2 > b1: the event came back, and goes no further"


def test_neighbours_whose_grant_does_not_cover_a_traced_event_are_named() -> None:
    lists: dict[str, list[str]] = {
        name: [] for name in ("sessions", "matched", "forwards", "durable", "kept_for")
    }
    hop = {"broker": "b1", "path": ["b1"], "withheld_from": ["b2", "b3"], **lists}
    assert list(_hop(hop)) == ["b1", "    withheld from b2, b3: no grant covers the event"]


# --- without the grant ---


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A broker that wants tokens, and the key that signs them."""
    key = tmp_path_factory.mktemp("keys") / "signing"
    create_key(key)
    data = tmp_path_factory.mktemp("guarded")
    with broker("b1", data, keys=key.with_name("signing.pub"), routing="advertised") as url:
        yield url, key


@pytest.fixture
def show_token(guarded: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """From now on the command shows a token of this name, with these grants."""
    key = load_private_key(guarded[1])

    def show(name: str, *, expires: int = 2**33, **grants: Any) -> None:
        monkeypatch.setenv("PALIO_TOKEN", sign(Claims(name, name, 0, expires, **grants), key))

    return show


def test_without_a_token_one_is_asked_for(run: Palio, guarded: tuple[str, Path]) -> None:
    refused = run("topology", "--broker", guarded[0])
    assert refused.status == 2
    assert "no token; show a token: $PALIO_TOKEN or --token-file" in refused.err
    assert "certificate" not in refused.err


@pytest.mark.parametrize("command", [("topology",), ("top", "--once", "--interval", "0.05")])
def test_what_shows_others_names_the_grant_that_is_missing(
    run: Palio, guarded: tuple[str, Path], show_token: Callable[..., None], command: tuple[str, ...]
) -> None:
    show_token("ann", allow_subscribe="TRUE", allow_publish="TRUE")
    refused = run(*command, "--broker", guarded[0])
    assert (refused.status, refused.out) == (2, "")
    assert "needs the grant `monitor`" in refused.err
    show_token("ops", monitor=True)
    assert run(*command, "--broker", guarded[0]).status == 0


def test_a_trace_without_the_grant_is_of_ones_own(
    run: Palio, guarded: tuple[str, Path], show_token: Callable[..., None]
) -> None:
    show_token("ann", allow_subscribe="TRUE", allow_publish="TRUE")
    traced = run("trace", '{"x": 1}', "--broker", guarded[0])
    assert traced.status == 1
    assert traced.out.splitlines()[-1].startswith("only what belongs to 'ann'; what concerns")
    assert "limited" in run("trace", '{"x": 1}', "--broker", guarded[0], "--json").document


# --- advertisements ---


def test_what_one_may_publish_is_announced_until_ctrl_c(
    run: Palio, guarded: tuple[str, Path], show_token: Callable[..., None]
) -> None:
    show_token("ann", allow_publish="region = 'EU'")
    refused = run("advertise", "region = 'US'", "--broker", guarded[0])
    assert refused.status == 2
    assert "'ann' may publish nothing that region = 'US' announces" in refused.err
    with process("advertise", "region = :own", "-p", "own=EU", "--broker", guarded[0]) as running:
        assert running.stderr is not None
        assert running.stderr.readline().startswith("palio: advertised region = 'EU' at b1; Ctrl-C")
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE_S) == INTERRUPTED


def test_who_may_announce_no_longer_is_told(
    run: Palio,
    guarded: tuple[str, Path],
    show_token: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pub, "CHECK_S", 0.05)
    show_token("ann", allow_publish="TRUE", expires=int(time.time()) + 2)
    ended = run("advertise", "TRUE", "--broker", guarded[0])
    assert ended.status == 2
    assert "the connection has ended for good" in ended.err


def test_an_identity_advertises_in_one_process_and_publishes_in_another(
    run: Palio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PALIO_TOKEN", raising=False)
    with (
        broker("b1", tmp_path, routing="advertised") as url,
        process("advertise", "x > 0", "--broker", url, "--identity", "ann") as running,
        palio.SyncClient(url) as listener,
    ):
        assert running.stderr is not None
        told = running.stderr.readline()
        assert told == "palio: advertised x > 0 at b1 as ann; Ctrl-C withdraws it\n"
        heard = listener.subscribe("TRUE")
        assert (
            "1 event published by ann/"
            in run("pub", "--broker", url, "--identity", "ann", stdin='{"x": 1}').out
        )
        assert dict(heard.receive(PATIENCE_S)) == {"x": 1}
        alone = run("pub", "--broker", url, stdin='{"x": 1}')
        assert alone.status == 2
        assert "1 of 1 events were not published" in alone.err
        assert run("advertise", "EXISTS x", "--broker", url, "--withdraw").status == 2
        words = ("advertise", "EXISTS x", "--broker", url, "--identity", "ann", "--withdraw")
        withdrawn = run(*words)
        assert withdrawn.status == 0
        assert withdrawn.err.endswith(
            "palio: nothing that EXISTS x covers is advertised at b1 as ann any longer\n"
        )
        as_json = run(*words, "--json").document
        assert as_json == {"broker": "b1", "identity": "ann", "withdrawn": "EXISTS x"}
        again = run("pub", "--broker", url, "--identity", "ann", stdin='{"x": 1}')
        assert "no advertisement of the identity 'ann'" in again.err


def test_who_shows_a_token_acts_under_its_own_name(
    run: Palio, guarded: tuple[str, Path], show_token: Callable[..., None]
) -> None:
    show_token("ann", allow_publish="TRUE")
    refused = run("pub", "--broker", guarded[0], "--identity", "bob", stdin='{"x": 1}')
    assert refused.status == 2
    assert "'ann' may not act as 'bob'" in refused.err
    assert "1 of 1" in run("pub", "--broker", guarded[0], "--identity", "ann", stdin='{"x": 1}').err


def test_who_advertises_is_told_that_another_client_has_withdrawn_it(
    run: Palio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pub, "CHECK_S", 0.05)
    with (
        broker("b1", tmp_path, routing="advertised") as url,
        palio.SyncClient(url, identity="ann") as client,
    ):

        def tell_and_withdraw(text: str) -> None:
            print_status(text)
            client.unadvertise("EXISTS x")

        monkeypatch.setattr(pub, "print_status", tell_and_withdraw)
        ended = run("advertise", "x > 0", "--broker", url, "--identity", "ann", "--json")
        assert ended.status == 0
        offered = {"broker": "b1", "identity": "ann", "advertised": "x > 0"}
        assert json.loads(ended.out) == offered
        assert "x > 0 was withdrawn by another client as ann" in ended.err


def test_an_identity_cancels_in_one_process_what_it_hears_in_another(
    run: Palio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PALIO_TOKEN", raising=False)
    with (
        broker("b1", tmp_path) as url,
        process("sub", "x > 5 THEN x > 6", "--broker", url, "--identity", "ann") as running,
    ):
        assert running.stderr is not None
        assert running.stderr.readline().startswith("palio: subscribed to x > 5 THEN x > 6 at b1")
        ended = run(
            "subscription",
            "cancel",
            "x > :low THEN TRUE",
            "-p",
            "low=5",
            "--broker",
            url,
            "--identity",
            "bob",
        )
        assert (ended.status, ended.out) == (0, "0 subscriptions of bob cancelled\n")
        ended = run(
            "subscription", "cancel", "TRUE", "--broker", url, "--identity", "bob", "--json"
        )
        assert ended.document == {"identity": "bob", "cancelled": 0}
        ended = run(
            "subscription",
            "cancel",
            "x > :low THEN TRUE",
            "-p",
            "low=5",
            "--broker",
            url,
            "--identity",
            "ann",
        )
        assert (ended.status, ended.out) == (0, "1 subscription of ann cancelled\n")
        assert running.wait(PATIENCE_S) == 2
        assert "another client that acts as 'ann' cancelled" in running.stderr.read()


# --- top ---


def status(**changes: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("published", "routed", "delivered", "dropped"), 1_000)
    return {
        "broker": "b1",
        "epoch": 1,
        "sessions": 3,
        "connected": 2,
        "subscriptions": 7,
        "durable_subscriptions": 2,
        "peers": {
            "b2": {"up": True, "queued_bytes": 0, "unseen_bytes": 2048, "dropped": 0},
            "b3": {"up": False, "queued_bytes": 5 << 20, "unseen_bytes": 0, "dropped": 9},
        },
        **counts,
        "queued_bytes": 512,
        "custody_entries": 12,
        "custody_waiting": {"ann/low": 0, "bob/high": 12},
        **changes,
    }


def test_rates_are_differences() -> None:
    now = figures(Sample(1.0, status()), Sample(3.0, status(published=1_500, dropped=1_001)))
    assert now["per_second"] == {"published": 250, "routed": 0, "delivered": 0, "dropped": 0.5}


def test_a_broker_that_was_started_anew_has_no_rates_yet() -> None:
    now = figures(Sample(1.0, status()), Sample(2.0, status(epoch=2, published=3)))
    assert now["per_second"]["published"] == 0


def test_once_for_scripts(run: Palio, urls: list[str], listener: palio.SyncClient) -> None:
    listener.subscribe("z > 0")
    outcome = run("top", "--broker", urls[1], "--once", "--interval", "0.05", "--json")
    document = outcome.document
    assert document["broker"] == "b2"
    assert document["peers"]["b1"]["up"] is True
    assert document["per_second"].keys() == {"published", "routed", "delivered", "dropped"}
    assert run("top", "--broker", urls[1], "--json").status == 2
    assert run("top", "--broker", urls[1], "--once", "--interval", "nan").status == 2


def test_once_for_people(run: Palio, urls: list[str]) -> None:
    lines = run("top", "--broker", urls[0], "--once", "--interval", "0.05").out.splitlines()
    assert lines[0] == "b1: events"
    assert next(line.split() for line in lines if "b2" in line)[:2] == ["b2", "up"]


def test_a_broker_that_does_not_answer_is_waited_for_so_long() -> None:
    class Silent:
        broker = "b1"

        @property
        def admin(self) -> Silent:
            return self

        async def status(self) -> None:
            await asyncio.Event().wait()

    client: Any = Silent()
    with pytest.raises(Unreachable, match="no answer from b1 for 5 s"):
        run_virtually(_sample(client))


def test_a_terminal_shows_everything() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=40, color_system=None)
    with Screen(console) as screen:
        screen.draw(figures(Sample(0.0, status()), Sample(1.0, status(published=3_500))))
        shown = out.getvalue()
        screen.show_problem("no answer")
    for text in ("2,500/s", "2 connected, 3 in all", "bob/high", "12 waiting", "DOWN", "5.0 MiB"):
        assert text in shown
    assert "no answer" not in shown
    assert "no answer" in out.getvalue()
    assert "\x1b[?1049l" in out.getvalue(), "the terminal is as it was"


def test_where_there_is_no_terminal_a_look_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Screen(Console(file=io.StringIO())) as screen:
        screen.draw(figures(Sample(0.0, status()), Sample(1.0, status(published=3_500))))
        screen.show_problem("no answer")
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("b1  published 2,500/s  routed 0/s")
    assert first.endswith("custody 12  down: b3")
    assert second == "no answer"


def test_ctrl_c_ends_it_cleanly(urls: list[str]) -> None:
    with process("top", "--broker", urls[0], "--interval", "0.05") as watcher:
        assert watcher.stdout is not None
        for _ in range(3):
            assert watcher.stdout.readline().startswith("b1  published ")
        watcher.send_signal(signal.SIGINT)
        _, err = watcher.communicate(timeout=PATIENCE_S)
    assert (watcher.returncode, err) == (INTERRUPTED, "")


@pytest.mark.parametrize(
    ("answers", "last"),
    [
        ({}, "no receivers"),
        ({"withheld": True}, "unknown: b2 withheld its answer"),
        ({"unreachable": True}, "unknown: b2 is not reachable"),
    ],
)
def test_a_trace_without_a_receiver_says_what_is_unknown(
    answers: dict[str, bool], last: str
) -> None:
    assert _conclusion([{"broker": "b1"}, {"broker": "b2", **answers}]) == last
