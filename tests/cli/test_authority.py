from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palio.cli import main
from palio.cli.authority import seconds
from palio.errors import InvalidInput


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main.run(arguments)
    said = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.out, said.err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    status, out, _ = run(capsys, *arguments, "--json")
    assert status == 0
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.fixture
def key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "signing"
    status, out, _ = run(capsys, "keys", "create", str(path))
    assert status == 0
    assert "signs tokens; keep it" in out
    return path


def test_a_token_is_made_read_and_revoked(key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = document(
        capsys,
        *("token", "create", "alice", "--key", str(key), "--may-hear", "price < 5"),
        *("--expires", "1h", "--limit", "events_per_s=100"),
    )
    token = made["token"]
    status, out, _ = run(capsys, "token", "inspect", token, "--keys", f"{key}.pub")
    assert status == 0
    assert "name         alice" in out
    assert "(valid)" in out
    assert "may hear     price < 5" in out
    assert "may publish  nothing" in out
    assert "monitor      no" in out
    assert "limits       events_per_s 100" in out
    read = document(capsys, "token", "inspect", token, "--keys", f"{key}.pub")
    assert read["claims"]["exp"] - read["claims"]["iat"] == 3_600
    revoked = key.with_name("revoked")
    for what in (token, "another"):
        assert run(capsys, "token", "revoke", what, "--file", str(revoked))[0] == 0
    assert revoked.read_text() == f"{made['id']}\nanother\n"


def test_a_token_may_be_told_about_others(key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = document(capsys, "token", "create", "ops", "--key", str(key), "--monitor")
    assert document(capsys, "token", "inspect", made["token"])["claims"]["monitor"] is True
    assert "monitor      yes" in run(capsys, "token", "inspect", made["token"])[1]


def test_keys_are_listed(key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(document(capsys, "keys", "list", str(key.parent))["keys"]) == 1
    empty = key.parent / "empty"
    empty.mkdir()
    assert run(capsys, "keys", "list", str(empty))[0] == 1


def test_a_token_of_another_key_is_told(key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = key.with_name("other")
    run(capsys, "keys", "create", str(other))
    token = document(capsys, "token", "create", "bob", "--key", str(other))["token"]
    status, out, _ = run(capsys, "token", "inspect", token, "--keys", f"{key}.pub")
    assert status == 1
    assert "which is unknown" in out
    status, out, _ = run(capsys, "token", "inspect", token)
    assert status == 0
    assert "not checked" in out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--may-hear", "price <"), "line 1, column 8"),
        (("--expires", "soon"), "is no duration"),
        (("--limit", "events_per_s"), "write it as events_per_s=1000"),
    ],
)
def test_bad_input_is_told(
    key: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], problem: str
) -> None:
    status, _, err = run(capsys, "token", "create", "bob", "--key", str(key), *arguments)
    assert status == 2
    assert problem in err


def test_what_is_no_token_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "token", "inspect", "nonsense")
    assert status == 2
    assert "no token" in err


def test_durations() -> None:
    assert [seconds(each) for each in ("1s", "2m", "3h", "4d")] == [1, 120, 10_800, 345_600]
    for text in ("", "0s", "1w", "-1s", "1.5h"):
        with pytest.raises(InvalidInput, match="is no duration"):
            seconds(text)
