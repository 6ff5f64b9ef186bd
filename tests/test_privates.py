"""No object of the house reaches into another's private names.

A name that begins with an underscore belongs to the module whose classes define it: there, and
nowhere else, it may be read from any object. `self._name` and `cls._name` are one's own anywhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]

OF_LIBRARIES: Final = frozenset(
    {"_asdict", "_fields", "_make", "_replace"}  # public names of named tuples
    | {"_export_to_c"}  # how Arrow hands arrays to compiled code, without pyarrow's C++ headers
    | {"_gateway", "_jvm"}  # Spark has no other way to its Java side
)
"""Names that another library's documents or customs allow."""

OWN: Final = frozenset({"self", "cls"})

SOURCES: Final = sorted(path for home in ("src", "studies") for path in (ROOT / home).rglob("*.py"))


def private_accesses(source: str) -> list[str]:
    """Accesses of a module to private names that no class of its own defines."""
    tree = ast.parse(source)
    defined = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for name in names_defined(node)
    }
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.endswith("__")
        and node.attr not in defined | OF_LIBRARIES
        and not is_own(node.value)
    ]


def names_defined(owner: ast.ClassDef) -> Iterator[str]:
    """The methods, fields and attributes of a class."""
    for node in ast.walk(owner):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                yield name
    for statement in owner.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def is_own(value: ast.expr) -> bool:
    """Whether this is the object itself, or what it inherits."""
    match value:
        case ast.Name(id=name):
            return name in OWN
        case ast.Call(func=ast.Name(id="super")):
            return True
    return False


def test_no_private_name_of_another_object() -> None:
    found = [
        f"{path.relative_to(ROOT)}, {access}"
        for path in SOURCES
        for access in private_accesses(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


# --- the checker itself ---

OTHERS: Final = (
    "def f(x): return x._name",
    "def f(x): x._name = 1",
    "class A:\n    def f(self): return self.other._name",
    "class A:\n    def f(self): return self._other._name\n    def __init__(self): self._other = 1",
    "class A:\n    def f(self, x): return x._name, self._name",
    "import other\nother._name()",
)

ONES_OWN: Final = (
    "class A:\n    def f(self): return self._name",
    "class A:\n    @classmethod\n    def f(cls): return cls._name",
    "class A:\n    def f(self): return super()._name()",
    "class A:\n    def __init__(self): self._name = 1\n    def f(self, x): return x._name",
    "class A:\n    def _name(self): ...\ndef f(x): x._name()",
    "class A:\n    _name: int\ndef f(x): return x._name",
    "def f(x): return x.__dict__, x.name, x._replace(a=1)",
)


@pytest.mark.parametrize("source", OTHERS)
def test_an_access_to_another_is_caught(source: str) -> None:
    assert len(private_accesses(source)) == 1


@pytest.mark.parametrize("source", ONES_OWN)
def test_an_access_to_ones_own_is_free(source: str) -> None:
    assert not private_accesses(source)
