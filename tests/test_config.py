from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from palio.config import Document, duration, explain, hint
from palio.errors import InvalidConfiguration, InvalidInput

TEXT = """\
name = "x" # = "y"
dotted.key = 1
inline = { a = 1 }

[grants.north]
hear = "TRUE"
[[sinks]]
path = "a"
[[sinks]]
'path' = "b"
"""


class Sink(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    mode: Annotated[Literal["append", "overwrite"] | None, "described"] = None


class Plan(msgspec.Struct, forbid_unknown_fields=True):
    sinks: tuple[Sink, ...] = ()
    named: dict[str, Sink] = {}
    one: Annotated[Sink | None, "described"] = None


@pytest.mark.parametrize(
    ("key", "line"),
    [
        *(("name", 1), ("dotted.key", 2), ("inline.a", 3), ("grants", 5), ("grants.north.hear", 6)),
        *(("grants.north.other", 5), ("sinks[0].path", 8), ("sinks[1].path", 10)),
        *(("sinks[1].other[3].deep", 9), ("sinks[2].path", None), ("absent.key", None), ("", None)),
    ],
)
def test_a_key_has_a_place(tmp_path: Path, key: str, line: int | None) -> None:
    path = tmp_path / "a.toml"
    path.write_text(TEXT)
    assert Document(path).place(key) == (f"{path}:{line}" if line else str(path))


@pytest.mark.parametrize(
    ("data", "problem"), [(b"a = ", "a.toml: "), (b"\xff", "a.toml: "), (None, "No such file")]
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, data: bytes | None, problem: str
) -> None:
    if data is not None:
        (tmp_path / "a.toml").write_bytes(data)
    with pytest.raises(InvalidConfiguration, match=problem):
        Document(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("value", "key", "problem"),
    [
        ({"sink": []}, "sink", "there is no such key; did you mean sinks?"),
        ({"sinks": [{"pth": ""}]}, "sinks[0].pth", "there is no such key; did you mean path?"),
        ({"named": {"x": {"zzz": 1}}}, "named.zzz", "there is no such key; there are mode, path"),
        (
            {"one": {"path": "", "mode": "x"}},
            "one.mode",
            "Invalid enum value 'x'; it is one of append, overwrite",
        ),
        ({"one": {"path": 1}}, "one.path", "Expected `str`, got `int`"),
        ({"sinks": [{}]}, "sinks[0]", "Object missing required field `path`"),
    ],
)
def test_what_does_not_fit_is_explained(value: Any, key: str, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, Plan)
    assert explain(caught.value, Plan) == (key, problem)


def test_a_hint_names_what_is_near() -> None:
    assert hint("lisen.port", ["listen.port", "log.level"], "no") == "did you mean listen.port?"
    assert hint("zzz", ["listen.port"], "ask for the list") == "ask for the list"


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("30 s", 30), ("1.5h", 5400)])
def test_times(text: str, seconds: float) -> None:
    assert duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "10", "s", "1 week", "-1s", "999999999d"])
def test_no_times(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no time"):
        duration(text)
