"""Rates count for a principal, not for each of its sessions."""

from __future__ import annotations

import pytest

from palio.node import allowances as allowances_module
from palio.node.allowances import Allowances
from palio.node.authority import Limits, Principal


def test_other_rates_and_other_names_have_their_own() -> None:
    allowances = Allowances()
    alice = Principal("alice", limits=Limits(events_per_s=1))
    richer = Principal("alice", limits=Limits(events_per_s=2))
    bob = Principal("bob", limits=Limits(events_per_s=1))
    allowances.of(alice, 0.0).spend(9, 0, 0.0)
    again = Principal("alice", limits=Limits(events_per_s=1))
    assert allowances.of(again, 0.0).wait_s(0.0) == 8.0
    assert allowances.of(richer, 0.0).wait_s(0.0) == 0.0
    assert allowances.of(bob, 0.0).wait_s(0.0) == 0.0


@pytest.mark.parametrize(("others", "is_known"), [(1, True), (2, False)])
def test_so_many_are_remembered(
    others: int, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allowances_module, "MAX_ALLOWANCES", 2)
    allowances = Allowances()
    limits = Limits(events_per_s=1)
    allowances.of(Principal("alice", limits=limits), 0.0).spend(9, 0, 0.0)
    for number in range(others):
        allowances.of(Principal(f"p{number}", limits=limits), 0.0)
    wait_s = allowances.of(Principal("alice", limits=limits), 0.0).wait_s(0.0)
    assert (wait_s > 0) is is_known
