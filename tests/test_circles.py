"""No module imports itself by way of others, not even late or for its types alone.

Every import counts: inside functions, under `TYPE_CHECKING`, and by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.test_layering import ROOT, STUDIES, imports, module_name

SOURCES: Final = [path for root in (ROOT, STUDIES) for path in root.rglob("*.py")]


def graph(sources: Iterable[Path]) -> dict[str, list[str]]:
    """What each module imports, of those given."""
    modules = {module_name(path): path for path in sources}
    return {
        name: sorted(
            found
            for each in imports(
                path.read_text(encoding="utf-8"), name, package=path.name == "__init__.py"
            )
            if (found := nearest(each.target, modules)) is not None
        )
        for name, path in modules.items()
    }


def nearest(target: str, modules: Mapping[str, object]) -> str | None:
    """The module that a dotted name is of: itself, or that which holds it."""
    while target and target not in modules:
        target = target.rpartition(".")[0]
    return target or None


def circles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components of two and more nodes (Tarjan 1972), each sorted."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        path.append(node)
        for other in edges[node]:
            if other not in number:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in path:
                lowest[node] = min(lowest[node], number[other])
        if lowest[node] == number[node]:
            place = path.index(node)
            if len(path) - place > 1:
                found.append(sorted(path[place:]))
            del path[place:]

    for node in edges:
        if node not in number:
            visit(node)
    return sorted(found)


@pytest.mark.xdist_group("sources")
def test_modules_do_not_import_each_other() -> None:
    edges = graph(SOURCES)
    found = [
        f"{name} -> {other}"
        for circle in circles(edges)
        for name in circle
        for other in edges[name]
        if other in circle
    ]
    assert not found, "these imports go in a circle:\n" + "\n".join(found)


# --- the checker itself ---


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ({"a": ["b"], "b": ["c"], "c": []}, []),
        ({"a": ["b"], "b": ["a"]}, [["a", "b"]]),
        ({"a": ["a"]}, []),
        ({"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": []}, [["b", "c"]]),
        ({"a": ["b"], "b": ["a", "c"], "c": ["d"], "d": ["c"]}, [["a", "b"], ["c", "d"]]),
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": ["a"]}, [["a", "b", "c", "d"]]),
    ],
)
def test_circles_are_found(edges: dict[str, list[str]], expected: list[list[str]]) -> None:
    assert circles(edges) == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [("a.b", "a.b"), ("a.b.name", "a.b"), ("a.name", "a"), ("numpy.array", None)],
)
def test_an_imported_name_is_of_its_module(target: str, expected: str | None) -> None:
    assert nearest(target, {"a": 1, "a.b": 2}) == expected


@pytest.mark.parametrize(
    "late",
    [
        "from palio.x.two import name",
        "def late():\n    from palio.x import two",
        "if TYPE_CHECKING:\n    import palio.x.two",
        "import importlib\nimportlib.import_module('palio.x.two')",
    ],
)
def test_late_imports_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str) -> None:
    room = tmp_path / "palio" / "x"
    room.mkdir(parents=True)
    monkeypatch.setattr("tests.test_layering.ROOT", tmp_path / "palio")
    (room / "one.py").write_text(late, encoding="utf-8")
    (room / "two.py").write_text("from palio.x.one import name", encoding="utf-8")
    assert circles(graph(room.glob("*.py"))) == [["palio.x.one", "palio.x.two"]]
