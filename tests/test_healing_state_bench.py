"""`benchmarks.healing_state` at its smaller sizes."""

from __future__ import annotations

import pytest

from benchmarks.healing_state import rows_of, scenario, states, summary


@pytest.mark.parametrize("count", [1, 10, 100])
def test_a_proxy_has_an_entry_for_each_type_below_it(count: int) -> None:
    """Issue 16, bar 4: whatever goes on elsewhere. Types that nobody offers are among them."""
    found = states(scenario(count), "proxies")
    assert all(each.entries == each.types_below for each in found.values())
    assert sum(each.pre_below for each in found.values()) >= 1


def test_in_a_mesh_every_broker_has_all_that_is_wanted() -> None:
    root = states(scenario(10), "proxies")["b1"]
    for routing, links in (("acyclic", 0), ("general", 9)):
        found = states(scenario(10), routing)
        assert {each.entries for each in found.values()} == {root.wanted_below}
        assert {each.tree_links for each in found.values()} == {links}


def test_the_summary_has_a_row_for_each_size_and_leaves_blank_what_was_not_counted() -> None:
    rows = [*rows_of(1, "general"), *rows_of(10, "proxies"), *rows_of(1, "proxies")]
    one, ten = summary(rows)
    assert (one["proxies: root"], one["general: root"]) == (2, 2)
    assert (ten["proxies: mean"], ten["general: mean"]) == (1.5, "")
