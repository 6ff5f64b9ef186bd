"""What a forest of matching trees consists of: counted and drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from palio_studies.tree.attribute_tests import show_label
from palio_studies.tree.factoring import OTHERS, Forest
from palio_studies.tree.nodes import Leaf, TreeNode, TreePlace, places


class Space(msgspec.Struct, frozen=True):
    """How large a forest is, in the paper's units."""

    trees: int
    nodes: int
    leaves: int
    edges: int
    successors: int

    @property
    def total(self) -> int:
        """Edges and entries of successor sets together: what the paper plots."""
        return self.edges + self.successors


def space(trees: Iterable[TreePlace | None]) -> Space:
    """Count places, edges and the entries of those successor sets that have been found."""
    roots = nodes = leaves = entries = edges = 0
    for root in trees:
        roots += 1
        for place in places(root):
            entries += len(place.successors or ())
            edges += place.parent is not None
            if isinstance(place, TreeNode):
                nodes += 1
            else:
                leaves += 1
    return Space(roots, nodes, leaves, edges, entries)


def draw(forest: Forest) -> Iterator[str]:
    """A forest as indented lines, each tree under the values of the index attributes it is for."""
    headed = []
    for choice, root in forest.trees.items():
        labels = ["others" if each is OTHERS else show_label(each) for each in choice]
        named = zip(forest.attributes, labels, strict=True)
        headed.append((", ".join(f"{name}: {shown}" for name, shown in named), root))
    for headline, root in sorted(headed, key=lambda each: each[0]):
        if headline:
            yield headline
        if root is not None:
            yield from _draw(root, 1 if headline else 0)


def _draw(root: TreePlace, depth: int) -> Iterator[str]:
    """A node's test, then its edges in the order of their texts, `*` last."""
    stack = [(depth, "", root)]
    while stack:
        depth, edge, place = stack.pop()
        yield f"{'  ' * depth}{edge}{_name(place)}"
        if isinstance(place, TreeNode):
            shown = [(f"{place.test.show(each.taken)}: ", each) for each in place.children]
            shown.sort(key=lambda line: (line[0] == "*: ", line[0]), reverse=True)
            stack += [(depth + 1, edge, each) for edge, each in shown]


def _name(place: TreePlace) -> str:
    if isinstance(place, TreeNode):
        return str(place.test)
    assert isinstance(place, Leaf)
    return f"[{', '.join(map(str, sorted(place.keys)))}]"
