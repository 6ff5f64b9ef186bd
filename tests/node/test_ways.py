"""The shortest way counts links that both ends list."""

from __future__ import annotations

from palio.node.ways import ShortestWays


def test_ties_go_to_the_lesser_name_and_one_sided_links_nowhere() -> None:
    said = {
        "b": ("a", "d"),
        "c": ("a", "d"),
        "d": ("b", "c", "e", "f"),
        "e": ("d",),
        "f": (),
    }
    found = ShortestWays("a", ["c", "b"], lambda broker: said.get(broker, ()))
    assert found.hops == {"b": "b", "c": "c", "d": "b", "e": "b"}
    assert [found.way(each) for each in ("c", "e", "f", "a")] == [("c",), ("b", "d", "e"), (), ()]
