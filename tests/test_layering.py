"""The house keeps its floors: who may import whom, and which rooms know no clock and no socket.

Everything is read from the source with `ast`, so imports inside functions, under `TYPE_CHECKING`
and through `importlib.import_module("literal")` count like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[1] / "src" / "palio"

STUDIES: Final = Path(__file__).parents[1] / "studies" / "palio_studies"
"""A distribution of its own: it may import any room, and none imports it."""

ROOMS: Final = (
    "errors",
    "engine",
    "bounded",
    "model",
    "language",
    "files",
    "config",
    "parquet",
    "tracing",
    "matching",
    "routing",
    "multicast",
    "protocol",
    "node",
    "simulation",
    "server",
    "client",
    "spark",
    "bridge",
    "testing",  # puts clients and nodes together, as the shells do not
    "cli",
)
"""Top to bottom: a room may import itself and those before it."""

SEPARATE: Final = frozenset({"simulation", "server", "client", "spark"})
"""Rooms that do not import each other, whatever their order..."""

CLIENTS: Final = frozenset({("spark", "client")})
"""...but for this: sources and sinks of Spark are clients of a broker."""

PURE: Final = frozenset(
    {
        "errors",
        "engine",
        "bounded",
        "model",
        "language",
        "matching",
        "routing",
        "multicast",
        "protocol",
    }
    | {"node", "simulation"}
)
"""Rooms to which time, randomness and the outside world are arguments."""

KEEPS_FILES: Final = "matching"
"""The one pure room that may import `files`: engines are saved to disk and loaded from there."""

IMPURE: Final = frozenset({"asyncio", "os", "random", "socket", "threading", "time"}) | frozenset(
    # Other doors to the same places.
    {"_thread", "concurrent", "multiprocessing", "posix", "secrets", "select", "selectors"}
    | {"signal", "ssl", "subprocess"}
)

FREE: Final = frozenset({"palio", "palio.__main__"})
"""The front door: re-exports from every room, lazily."""


class Import(NamedTuple):
    """A dotted name that a module imports; `from a import b` is `a.b`."""

    line: int
    target: str


@cache
def imports(source: str, module: str, *, package: bool = False) -> list[Import]:
    """Every import of a module's source, wherever it stands, as absolute names."""
    return [*_imports(source, module, package=package)]


def _imports(source: str, module: str, *, package: bool) -> Iterator[Import]:
    home = module if package else module.rpartition(".")[0]
    tree = ast.parse(source, filename=module)
    importers = {"__import__", "import_module"} | {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "importlib"
        for alias in node.names
        if alias.name in ("__import__", "import_module")
    }
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(node.lineno, alias.name)
            case ast.ImportFrom(module=name, names=names, level=level):
                origin = resolve(level, name or "", home)
                for alias in names:
                    yield Import(node.lineno, f"{origin}.{alias.name}")
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)) if (
                called in importers
            ):
                name = literal_argument(node, 0, "name")
                if name is not None:
                    written = name.lstrip(".")
                    package_name = literal_argument(node, 1, "package") or home
                    yield Import(
                        node.lineno, resolve(len(name) - len(written), written, package_name)
                    )


def resolve(level: int, name: str, home: str) -> str:
    """The absolute form of a name written with `level` leading dots inside the package `home`."""
    if level == 0:
        return name
    parents = home.split(".")
    return ".".join(filter(None, [*parents[: len(parents) - level + 1], name]))


def literal_argument(call: ast.Call, position: int, keyword: str) -> str | None:
    """The text that a call passes for a parameter, if it is written out."""
    given = [k.value for k in call.keywords if k.arg == keyword]
    argument = call.args[position] if position < len(call.args) else next(iter(given), None)
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    return None


def violations(source: str, module: str, *, package: bool = False) -> list[str]:
    """What a module imports and must not, each with its line and the rule."""
    room = module.split(".")[1]
    if room not in ROOMS:
        return [f"{module}: {room} is not a room of the house; see ROOMS in {Path(__file__).name}"]
    found = []
    for line, target in imports(source, module, package=package):
        top, _, rest = target.partition(".")
        rule = (
            house_rule(room, rest.partition(".")[0]) if top == "palio" else outside_rule(room, top)
        )
        if rule:
            found.append(f"{module}:{line}: imports {target}: {rule}")
    return found


def house_rule(importer: str, imported: str) -> str | None:
    """Why one room may not import another, or a name that is no room; None if it may."""
    if imported == importer or (imported.startswith("__") and imported.endswith("__")):
        return None
    if imported not in ROOMS:
        return "inside the house, import from the room that owns the name"
    if {importer, imported} <= SEPARATE and (importer, imported) not in CLIENTS:
        return f"{importer} and {imported} do not import each other"
    if imported == "files" and importer in PURE - {KEEPS_FILES}:
        return f"{importer} is pure; it writes no files"
    if ROOMS.index(imported) > ROOMS.index(importer):
        return f"{importer} stands above {imported}"
    return None


def outside_rule(importer: str, module: str) -> str | None:
    """Why a room may not import a module from outside the house; None if it may."""
    if module == STUDIES.name:
        return "the studies import Palio, and not the other way round"
    if importer in PURE and module in IMPURE:
        return f"{importer} is pure; take what {module} gives as an argument"
    return None


def module_name(path: Path) -> str:
    home = STUDIES if path.is_relative_to(STUDIES) else ROOT
    parts = path.relative_to(home.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES: Final = sorted(path for path in ROOT.rglob("*.py") if module_name(path) not in FREE)


def test_sources_are_found() -> None:
    assert {"palio.errors", "palio.model", "palio.language"} <= {module_name(p) for p in SOURCES}


@pytest.mark.xdist_group("sources")
def test_modules_keep_the_layering() -> None:
    found = [
        violation
        for path in SOURCES
        for violation in violations(
            path.read_text("utf-8"), module_name(path), package=path.name == "__init__.py"
        )
    ]
    assert not found, "\n".join(found)


# --- the checker itself ---


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("palio.model.filters", "import palio.matching"),
        ("palio.model.filters", "import sys, palio.matching.index as index"),
        ("palio.model.filters", "from palio.matching import Matcher"),
        ("palio.model.filters", "from palio import matching"),
        ("palio.model.filters", "from ..matching import Matcher"),
        ("palio.model.filters", "from .. import matching"),
        ("palio.model.deep.er", "from ...language import parse"),
        ("palio.errors", "from . import model"),
        ("palio.errors", "def late():\n    from palio.model import Filter"),
        ("palio.errors", "if TYPE_CHECKING:\n    from palio.model import Filter"),
        ("palio.errors", "import importlib\nimportlib.import_module('palio.model')"),
        ("palio.errors", "from importlib import import_module as load\nload('palio.model')"),
        ("palio.errors", "from importlib import import_module\nimport_module(name='.model')"),
        (
            "palio.client.bus",
            "from importlib import import_module\nimport_module('.spark', 'palio')",
        ),
        ("palio.errors", "__import__('palio.model')"),
        ("palio.routing.acyclic", "from palio.node import Node"),
        ("palio.node.node", "from palio import files"),
        ("palio.model.events", "from palio import files"),
        ("palio.node.node", "from palio.simulation import World"),
        ("palio.server.http.app", "from palio.cli import main"),
        ("palio.spark.source", "from palio_studies import figures"),
        ("palio.cli.main", "def late():\n    import palio_studies.command"),
    ],
)
def test_an_import_from_a_lower_room_is_caught(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


def test_the_four_shells_do_not_import_each_other() -> None:
    for importer, imported in product(SEPARATE, repeat=2):
        found = violations(f"import palio.{imported}.x", f"palio.{importer}.y")
        is_allowed = importer == imported or (importer, imported) in CLIENTS
        assert bool(found) != is_allowed


@pytest.mark.parametrize(
    "source", ["import palio", "from palio import parse", "from palio import *"]
)
def test_the_front_door_is_for_guests_only(source: str) -> None:
    assert violations(source, "palio.cli.main")


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "import os.path as path",
        "import sys, time",
        "from os import path",
        "from os.path import join",
        "from asyncio.queues import Queue",
        "from time import monotonic as now",
        "def late():\n    import random",
        "class C:\n    async def f(self):\n        from threading import Lock",
        "try:\n    import socket\nexcept ImportError:\n    socket = None",
        "__import__('os')",
        "import importlib as il\nil.import_module('os.path')",
        "import concurrent.futures",
    ],
)
def test_a_pure_room_imports_nothing_impure(source: str) -> None:
    for room in ROOMS:
        assert len(violations(source, f"palio.{room}.x")) == (room in PURE), room


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("palio.model.filters", "from palio.model.values import Value\nfrom palio import errors"),
        ("palio.model.filters", "from .values import Value\nfrom ..errors import InvalidFilter"),
        ("palio.matching.index", "import palio.language, palio.model.limits"),
        ("palio.matching.storage", "from palio import files"),
        ("palio.server.journal.journal", "from palio import files"),
        ("palio.cli.main", "from palio.client import Bus\nfrom palio.spark import match"),
        ("palio.cli.main", "from palio import __version__"),
        ("palio.model.filters", "import datetime, timeit, osmium, numpy.random"),
        ("palio.model.filters", "import_module(name)\nregistry.import_module()\n'import os'"),
    ],
)
def test_an_import_from_a_higher_room_is_free(module: str, source: str) -> None:
    assert not violations(source, module)


def test_dots_count_from_the_package_itself_in_its_init() -> None:
    assert not violations("from .values import Value", "palio.model", package=True)
    assert violations("from ..matching import Matcher", "palio.model", package=True)
    assert not violations("from . import values", "palio.model", package=True)


def test_a_room_that_nobody_listed_is_refused() -> None:
    assert violations("", "palio.attic.trunk")
    assert violations("import palio.attic", "palio.cli.main")


def test_a_violation_names_the_place_and_the_rule() -> None:
    assert violations("\nimport os", "palio.model.values") == [
        "palio.model.values:2: imports os: model is pure; take what os gives as an argument"
    ]


def test_no_two_rooms_may_import_each_other() -> None:
    for one, other in combinations(ROOMS, 2):
        assert house_rule(one, other) or house_rule(other, one)
