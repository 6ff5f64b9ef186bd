from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from palio import SyncClient
from palio.cli.main import INTERRUPTED
from palio.cli.serve import listen_settings
from palio.errors import InvalidConfiguration
from palio.matching import warming
from palio.matching.kernels import registry
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Bye, Hello, Message, Redirect, Welcome
from palio.protocol.wire import Decoder, Encoder
from palio.server.configuring import Setting, known_settings
from tests.cli.brokers import PROGRAM
from tests.cli.helpers import Palio
from tests.pages import ROOT, blocks

PATIENCE_S: Final = 60

LINE: Final = {"north": ["mid"], "mid": ["north", "south"], "south": ["mid"]}
"""The brokers of the guide, and their links."""


@contextmanager
def serve(
    *arguments: str, program: str = PROGRAM, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """A broker as a process, which ends with the block whatever happens there."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, "serve", "--listen", "127.0.0.1:0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def greet(port: int) -> socket.socket:
    """A connection whose greeting was answered."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    connection.sendall(b"".join(Encoder().encode(Hello("client", "alice", PROTOCOL_VERSION))))
    decoder = Decoder("the broker")
    heard: list[Message] = []
    while not heard:
        heard += decoder.feed(connection.recv(4_096))
    assert isinstance(heard[0], Welcome)
    return connection


def rest(connection: socket.socket) -> list[Message]:
    decoder = Decoder("the broker")
    heard: list[Message] = []
    while data := connection.recv(4_096):
        heard += decoder.feed(data)
    connection.close()
    return heard


HEAVY: Final = {
    "cryptography", "h11", "httpx", "jwt", "llvmlite", "numba", "pandas",
    "prometheus_client", "starlette", "uvicorn", "websockets",
}  # fmt: skip
"""What takes a broker time and memory, and what it does without until it is asked for it."""


@pytest.mark.parametrize(
    ("settings", "imported"),
    [
        ((), set[str]()),
        (("--http", "0"), {"cryptography", "h11", "httpx", "prometheus_client", "starlette"}),
    ],
)
def test_a_broker_imports_what_it_needs(settings: tuple[str, ...], imported: set[str]) -> None:
    found = "{each.partition('.')[0] for each in sys.modules}"
    told = f"atexit.register(lambda: print(*{found}, flush=True))"
    with serve(*settings, program=f"import atexit, sys; {told}; {PROGRAM}") as process:
        first_line(process)
        process.send_signal(signal.SIGTERM)
        modules = set(process.communicate(timeout=PATIENCE_S)[0].split())
    assert {"numpy", "palio", "pyarrow"} <= modules
    assert modules & HEAVY >= imported
    assert imported or not modules & HEAVY


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    with serve("--name", "north", "--data", str(tmp_path), "--json") as process:
        announced = json.loads(first_line(process))
        assert announced["broker"] == "north"
        port = int(announced["listening"]["palio"].rpartition(":")[2])
        connection = greet(port)
        process.send_signal(number)
        assert rest(connection) == [Redirect(), Bye("closed", "the broker is going down")]
        out, err = process.communicate(timeout=PATIENCE_S)
        status = INTERRUPTED if number == signal.SIGINT else 0
        assert (process.returncode, out) == (status, "")
        assert "broker_stopping" in err
    assert (tmp_path / "journal.sqlite").is_file()


def test_a_hangup_reloads_the_file_and_a_mistake_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "palio.toml"

    def reloaded(process: subprocess.Popen[str], text: str, event: str) -> dict[str, Any]:
        file.write_text(text)
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        for line in iter(process.stderr.readline, ""):
            record: dict[str, Any] = json.loads(line)
            if record["event"] == event:
                return record
        raise AssertionError(f"{event} was not logged")

    file.write_text("[limits]\nmax_sessions = 5\n")
    with serve("--config", str(file), PALIO__LOG__FORMAT="json") as process:
        port = int(first_line(process).rpartition(":")[2])
        connection = greet(port)
        other = "[limits]\nmax_sessions = 6\n"
        assert reloaded(process, other, "reload_applied")["settings"] == ["limits.max_sessions"]
        kept = "[limits]\nmax_sessions = 6\nheartbeat_s = 9\n"
        assert reloaded(process, kept, "reload_ignored")["settings"] == ["limits.heartbeat_s"]
        failed = reloaded(process, "[limits]\nmax_sessions = 0\n", "reload_failed")
        assert "max_sessions = 0" in failed["reason"]
        process.send_signal(signal.SIGTERM)
        assert rest(connection)[-1] == Bye("closed", "the broker is going down")
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0


def test_people_are_told_where_it_listens_and_logs_may_be_json() -> None:
    with serve(PALIO__LOG__FORMAT="json") as process:
        assert re.fullmatch(r"palio listens on palio://127\.0\.0\.1:\d+\n", first_line(process))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
        events = [json.loads(line)["event"] for line in err.splitlines()]
        assert events[-1] == "broker_stopping"


def test_a_broker_that_cannot_listen_says_so(palio: Palio) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = palio("serve", "--listen", address)
    assert outcome.status == 2
    *_, last = outcome.err.splitlines()  # a busy machine may have its loop_blocked before
    assert last.startswith(f"palio: listen.host, listen.port: {address}: ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--listen", "0.0.0.0:0"], "set tls.cert and tls.key"),
        (["--listen", "127.0.0.1:x"], "it is host:port"),
        (["--peer", "nowhere"], "'nowhere' is no address of a broker"),
        (["--config", "/none.toml"], "/none.toml: No such file"),
        (["--http", "70000"], "--http: http.port = 70000"),
    ],
)
def test_bad_settings_are_told_and_nothing_runs(
    palio: Palio, arguments: list[str], problem: str
) -> None:
    outcome = palio("serve", *arguments)
    assert outcome.status == 2
    assert problem in outcome.err
    assert palio("serve", *arguments, "--json").document["error"]["type"] == "InvalidConfiguration"


def test_a_missing_package_is_named_with_how_to_get_it(
    palio: Palio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "palio.server.metrics", None)
    monkeypatch.delattr("palio.server.metrics", raising=False)  # where a test before imported it
    outcome = palio("serve", "--listen", "127.0.0.1:0", "--http", "0")
    assert outcome.status == 2
    assert "pip install 'palio[server]'" in outcome.err


# --- palio config ---


def test_every_setting_is_shown_with_its_origin(
    palio: Palio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "palio.toml"
    file.write_text("[broker]\nname = 'north'\n")
    monkeypatch.setenv("PALIO__LISTEN__PORT", "7401")
    shown = palio("config", "show", "--origin", "--config", str(file)).out.splitlines()
    found = {line.partition(" =")[0]: line for line in shown}
    assert set(found) == set(known_settings())
    assert found["broker.name"].split() == ["broker.name", "=", '"north"', "#", f"{file}:2"]
    assert found["listen.port"].endswith("# environment PALIO__LISTEN__PORT")
    assert found["log.level"].endswith("# default")
    document = palio("config", "show", "--origin", "--json", "--config", str(file)).document
    assert document["broker.name"] == {"value": "north", "origin": f"{file}:2"}
    assert palio("config", "show", "--json").document["listen.port"] == 7401
    assert "#" not in palio("config", "show").out


def test_a_configuration_is_checked(palio: Palio, tmp_path: Path) -> None:
    file = tmp_path / "palio.toml"
    file.write_text("[broker]\nname = 'north'\n")
    outcome = palio("config", "check", "--config", str(file))
    assert (outcome.status, outcome.err) == (0, "")
    assert "good: 1 settings" in outcome.out
    assert palio("config", "check", "--json").document == {"valid": True, "set": 0}
    file.write_text("[broker]\nnane = 'north'\n")
    outcome = palio("config", "check", "--config", str(file))
    assert outcome.status == 2
    assert f"{file}:2: no setting is called broker.nane; did you mean broker.name?" in outcome.err


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:0", "127.0.0.1", 0), ("[::1]:7", "::1", 7), ("localhost", "localhost", 7400)],
)
def test_where_to_listen_as_one_flag(text: str, host: str, port: int) -> None:
    assert listen_settings(text) == [
        Setting("listen.host", host, "--listen"),
        Setting("listen.port", port, "--listen"),
    ]


def test_serve_and_a_check_list_all_mistakes_alike(palio: Palio, tmp_path: Path) -> None:
    file = tmp_path / "palio.toml"
    file.write_text(
        f'[broker]\ndata_dir = "{file}/data"\n\n[auth]\nkeys = "{tmp_path}/none"\n'
        f'revoked = "{tmp_path}/revoked"\n'
    )
    checked = palio("config", "check", "--config", str(file))
    assert (checked.status, checked.out) == (2, "")
    heading, *lines = checked.err.splitlines()
    assert heading == "palio: 3 settings are wrong"
    for line, key in zip(
        lines, (f"broker.data_dir ({file}:2)", f"auth.revoked ({file}:6)", f"auth.keys ({file}:5)"),
        strict=True,
    ):  # fmt: skip
        assert line.startswith(f"  {key}: ")
        assert "; " in line
    assert palio("serve", "--config", str(file)) == checked
    error = palio("config", "check", "--config", str(file), "--json").document["error"]
    assert f"palio: {error['message']}\n" == checked.err
    assert palio("config", "show", "--config", str(file)).status == 0, "it opens no file"


def test_a_flag_that_is_no_address_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="it is host:port"):
        listen_settings("127.0.0.1:")


# --- what a broker leaves out ---

LOOKS_FOR_PANDAS: Final = """
import sys
import pyarrow as pa
from palio import SyncClient
from palio.cli.serve import leave_out_pandas
{first}
pa.array([1])
pa.RecordBatch.from_pylist([{{"x": 1}}]).to_pylist()
print("pandas" in sys.modules)
import pandas
print(pa.table({{"x": [1]}}).to_pandas()["x"].tolist())
"""


@pytest.mark.parametrize(("first", "is_there"), [("", True), ("leave_out_pandas()", False)])
def test_arrow_does_not_import_pandas(first: str, is_there: bool) -> None:
    """In a process of its own: Arrow looks for pandas once a process."""
    pytest.importorskip("pandas")
    program = LOOKS_FOR_PANDAS.format(first=first)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0] == str(is_there)
    assert done.stdout.splitlines()[1] == "[1]", "who asks for a data frame has one all the same"


# --- warm ---


def test_kernels_are_compiled_and_the_time_is_told(palio: Palio) -> None:
    warming.warm()
    outcome = palio("warm")
    assert outcome.status == 0
    assert re.fullmatch(r"The kernels are compiled and cached: \d+\.\d s\n", outcome.out)
    assert registry.ready() is not None


def test_where_none_are_it_tells_how_far_it_is(
    palio: Palio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_loaded", [])
    monkeypatch.setattr(registry, "are_on_disk", lambda: False)
    first, *progress, last = palio("warm").out.splitlines()
    assert first.startswith("compiling them takes about a minute")
    assert progress == [f"{done} of 23 kernels" for done in range(1, 24)]
    assert last.startswith("The kernels are compiled and cached")


def test_it_waits_for_another_process_and_says_so(
    palio: Palio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "are_on_disk", lambda: False)
    monkeypatch.setattr(warming, "warm_unless_busy", lambda _tell: None)
    _, waiting, last = palio("warm").out.splitlines()
    assert waiting == "another process compiles them; this one waits for it"
    assert last.startswith("The kernels are compiled and cached")


def test_the_time_as_json(palio: Palio) -> None:
    outcome = palio("warm", "--json")
    assert outcome.status == 0
    assert outcome.document["seconds"] >= 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_three_brokers_with_keys_run_as_the_guide_says(
    tmp_path: Path, palio: Palio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "palio"
    program.write_text('#!/bin/sh\necho "$*"\n')
    program.chmod(0o755)
    page = (ROOT / "docs" / "howto" / "authority.md").read_text(encoding="utf-8")
    make_keys, serve_three = (each.code for each in blocks(page) if each.language == "sh")
    ports = {f":{port}": f":{free_port()}" for port in (7401, 7402, 7403)}
    serve_three = re.sub(r":740[123]", lambda found: ports[found[0]], serve_three)
    given: dict[str, Any] = {
        "cwd": tmp_path,
        "env": os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        "stdout": subprocess.PIPE,
        "text": True,
    }
    called = subprocess.run(["sh", "-e", "-c", make_keys], check=True, **given).stdout
    for line in called.splitlines():  # in this process, which is quicker than eight
        assert palio(*line.split()).status == 0
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m palio "$@"\n')
    with subprocess.Popen(["sh", "-c", f"{serve_three}\nwait"], process_group=0, **given) as three:
        try:
            for _ in range(3):
                assert "listens" in first_line(three)
            token = (tmp_path / "ann.token").read_text().strip()
            linked: dict[str, list[str]] = {}
            with SyncClient(f"palio://127.0.0.1{ports[':7401']}", token=token) as ann:
                began = time.monotonic()
                while linked != LINE and time.monotonic() - began < PATIENCE_S:
                    brokers = ann.admin.topology()["brokers"]
                    linked = {name: sorted(each["links"]) for name, each in brokers.items()}
        finally:
            os.killpg(three.pid, signal.SIGTERM)
            three.communicate(timeout=PATIENCE_S)  # until the last of them has ended
    assert linked == LINE
