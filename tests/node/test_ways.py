"""The shortest way counts links that both ends list."""

from __future__ import annotations

from palio.node.ways import next_hops


def test_ties_go_to_the_lesser_name_and_one_sided_links_nowhere() -> None:
    said = {
        "b": ("a", "d"),
        "c": ("a", "d"),
        "d": ("b", "c", "e", "f"),
        "e": ("d",),
        "f": (),
    }
    found = next_hops("a", ["c", "b"], lambda broker: said.get(broker, ()))
    assert found == {"b": "b", "c": "c", "d": "b", "e": "b"}
