from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from palio.cli import main
from palio.server import keyfiles, tokens


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
        *("token", "create", "alice", "--key", str(key), "--allow-subscribe", "price < 5"),
        *("--expires", "1h", "--limit", "events_per_s=100", "--network", "staging"),
    )
    token = kept(key.with_name("alice"), made["token"])
    status, out, _ = run(capsys, "token", "inspect", token, "--keys", f"{key}.pub")
    assert status == 0
    assert "name            alice" in out
    assert f"id              {made['id']}" in out
    assert "(valid)" in out
    assert "allow_subscribe price < 5" in out
    assert "allow_publish   nothing" in out
    assert "network         staging" in out
    assert "monitor         no" in out
    assert "acts as         alice\n" in out
    assert "limits          events_per_s 100" in out
    read = document(capsys, "token", "inspect", token, "--keys", f"{key}.pub")
    assert read["claims"]["aud"] == "staging"
    assert read["claims"]["exp"] - read["claims"]["iat"] == 3_600
    revoked = key.with_name("revoked")
    for what in (made["id"], "another"):
        assert run(capsys, "token", "revoke", what, "--file", str(revoked))[0] == 0
    assert revoked.read_text() == f"{made['id']}\nanother\n"


def test_the_file_of_a_token_is_revoked_by_its_id(
    key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = document(capsys, "token", "create", "alice", "--key", str(key))
    revoked = key.with_name("revoked")
    token = kept(key.with_name("alice"), made["token"])
    assert run(capsys, "token", "revoke", token, "--file", str(revoked))[0] == 0
    assert revoked.read_text() == f"{made['id']}\n"
    other = kept(key.with_name("other"), "another")
    status, _, err = run(capsys, "token", "revoke", other, "--file", str(revoked))
    assert (status, "holds no token; name a file" in err) == (2, True)


def test_a_token_may_act_under_other_names(key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("--identity", "ann", "--identity", "bob")
    made = document(capsys, "token", "create", "planner", "--key", str(key), *names)
    token = kept(key.with_name("planner"), made["token"])
    assert "acts as         planner, ann, bob\n" in run(capsys, "token", "inspect", token)[1]
    assert document(capsys, "token", "inspect", token)["claims"]["identities"] == ["ann", "bob"]


@pytest.mark.parametrize("grant", ["monitor", "operate"])
def test_a_token_may_have_grants_that_are_no_filters(
    key: Path, capsys: pytest.CaptureFixture[str], grant: str
) -> None:
    made = document(capsys, "token", "create", "ops", "--key", str(key), f"--{grant}")
    token = kept(key.with_name("ops"), made["token"])
    claims = document(capsys, "token", "inspect", token)["claims"]
    other = {"monitor": "operate", "operate": "monitor"}[grant]
    assert claims[grant] is True
    assert other not in claims
    shown = run(capsys, "token", "inspect", token)[1]
    assert f"{grant:15} yes" in shown
    assert f"{other:15} no" in shown


def kept(path: Path, token: str) -> str:
    path.write_text(token)
    path.chmod(0o600)
    return str(path)


def test_a_token_is_read_from_standard_input(
    key: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = document(capsys, "token", "create", "alice", "--key", str(key))
    revoked = key.with_name("revoked")
    for arguments in (("inspect",), ("inspect", "-"), ("revoke", "-", "--file", str(revoked))):
        given = io.TextIOWrapper(io.BytesIO(f"{made['token']}\n".encode()))
        monkeypatch.setattr("sys.stdin", given)
        assert run(capsys, "token", *arguments)[0] == 0
    assert revoked.read_text() == f"{made['id']}\n"


def test_a_token_as_an_argument_is_refused(key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = document(capsys, "token", "create", "alice", "--key", str(key))["token"]
    revoked = key.with_name("revoked")
    for arguments in (("inspect", token), ("revoke", token, "--file", str(revoked))):
        status, _, err = run(capsys, "token", *arguments)
        assert status == 2
        assert "write it to standard input and give -" in err
        assert token not in err
    assert not revoked.exists()


@pytest.mark.usefixtures("any_umask")
def test_a_token_is_written_for_its_owner_only(
    key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = key.with_name("alice.token")
    arguments = ("token", "create", "alice", "--key", str(key), "--output", str(out))
    made = document(capsys, *arguments)
    assert made["file"] == str(out)
    assert "token" not in made
    assert out.stat().st_mode & 0o777 == 0o600
    read = document(capsys, "token", "inspect", str(out), "--keys", f"{key}.pub")
    assert read["claims"]["jti"] == made["id"]
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert "File exists" in err


def test_a_token_that_others_may_read_is_refused(
    key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(kept(key.with_name("token"), "t"))
    path.chmod(0o644)
    for arguments in (
        ("token", "inspect", str(path)),
        ("sub", "TRUE", "--broker", "palio://127.0.0.1:9", "--token-file", str(path)),
    ):
        status, _, err = run(capsys, *arguments)
        assert status == 2
        assert "may be read by others (mode 0644); chmod 600 it" in err


def test_a_token_is_not_revoked_through_a_link(
    key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    precious, link = key.with_name("precious"), key.with_name("revoked")
    precious.write_text("precious")
    link.symlink_to(precious)
    status, _, err = run(capsys, "token", "revoke", "number", "--file", str(link))
    assert status == 2
    assert "is a link" in err
    assert precious.read_text() == "precious"


def test_keys_are_listed(key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(document(capsys, "keys", "list", str(key.parent))["keys"]) == 1
    empty = key.parent / "empty"
    empty.mkdir()
    assert run(capsys, "keys", "list", str(empty))[0] == 1


def test_a_token_of_another_key_is_told(key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = key.with_name("other")
    run(capsys, "keys", "create", str(other))
    made = document(capsys, "token", "create", "bob", "--key", str(other))
    token = kept(key.with_name("bob"), made["token"])
    status, out, _ = run(capsys, "token", "inspect", token, "--keys", f"{key}.pub")
    assert status == 1
    assert "which is unknown" in out
    status, out, _ = run(capsys, "token", "inspect", token)
    assert status == 0
    assert "not checked" in out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--allow-subscribe", "price <"), "line 1, column 8"),
        (("--expires", "soon"), "is no time"),
        (("--expires", "0s"), "1s at least"),
        (("--expires", "99999999d"), "MAX_TIME_S"),
        (("--limit", "events_per_s"), "write it as events_per_s=1000"),
        (("--limit", "events_per_s=inf"), "events_per_s is inf"),
    ],
)
def test_bad_input_is_told(
    key: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], problem: str
) -> None:
    status, _, err = run(capsys, "token", "create", "bob", "--key", str(key), *arguments)
    assert status == 2
    assert problem in err


@pytest.mark.parametrize("name", ["..", "a/b", " bob", "bob\x1b[2J", "n" * 201])
def test_nobody_gets_a_token_under_no_name(
    key: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    status, out, err = run(capsys, "token", "create", name, "--key", str(key))
    assert (status, out) == (2, "")
    assert "a name has 1 to 200 bytes" in err or "MAX_NAME_BYTES" in err


def test_what_is_no_token_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nonsense = kept(tmp_path / "nonsense", "nonsense")
    status, _, err = run(capsys, "token", "inspect", nonsense)
    assert status == 2
    assert "no token" in err
    status, _, err = run(capsys, "token", "inspect", str(tmp_path / "none"))
    assert status == 2
    assert "No such file" in err


def test_a_token_of_a_broker_is_bound_to_its_key(
    key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = key.with_name("north")
    run(capsys, "keys", "create", str(own))
    asked = ("token", "create", "north", "--key", str(key), "--broker-key", f"{own}.pub")
    given = ("--allow-publish", "TRUE", "--output", f"{own}.token")
    document(capsys, *asked, *given)
    token = (own.with_suffix(".token")).read_text().strip()
    _, out, _ = run(capsys, "token", "inspect", f"{own}.token", "--keys", f"{key}.pub")
    bound = keyfiles.public_key_text(keyfiles.load_private_key(own).public_key())
    assert f"broker          with the key {bound}" in out
    assert tokens.BoundToken(token, keyfiles.load_private_key(own)).name == "north"
    document(capsys, *asked[:5], "--output", f"{own}.plain")
    _, out, _ = run(capsys, "token", "inspect", f"{own}.plain")
    assert "broker          no" in out
    run(capsys, "keys", "create", str(key.with_name("south")))
    status, _, err = run(capsys, *asked[:6], str(key.parent))
    assert status == 2
    assert "the one public key of that broker" in err
