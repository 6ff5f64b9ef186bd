from __future__ import annotations

import re

import pytest

from palio.matching import warming
from palio.matching.kernels import registry
from palio.routing import kernels as routing_kernels
from tests.cli.helpers import Palio


def test_kernels_are_compiled_and_the_time_is_told(palio: Palio) -> None:
    warming.warm()
    outcome = palio("warm")
    assert outcome.status == 0
    assert re.fullmatch(r"The kernels are compiled and cached: \d+\.\d s\n", outcome.out)
    assert registry.ready() is not None


def test_where_none_are_it_tells_how_far_it_is(
    palio: Palio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_loaded", [])
    monkeypatch.setattr(routing_kernels, "are_on_disk", lambda: False)
    first, *progress, last = palio("warm").out.splitlines()
    assert first.startswith("compiling them takes about a minute")
    assert progress == [f"{done} of 24 kernels" for done in range(1, 25)]
    assert last.startswith("The kernels are compiled and cached")


def test_it_waits_for_another_process_and_says_so(
    palio: Palio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing_kernels, "are_on_disk", lambda: False)
    monkeypatch.setattr(warming, "warm_unless_busy", lambda _tell: None)
    _, waiting, last = palio("warm").out.splitlines()
    assert waiting == "another process compiles them; this one waits for it"
    assert last.startswith("The kernels are compiled and cached")


def test_json(palio: Palio) -> None:
    outcome = palio("warm", "--json")
    assert outcome.status == 0
    assert outcome.document["seconds"] >= 0
