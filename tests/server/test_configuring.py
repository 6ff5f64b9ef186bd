from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import InvalidConfiguration
from palio.server.configuring import Setting, configure, described, known_settings
from palio.server.settings import Grant

EXAMPLE: Final = """\
# A broker of three.
[broker]
name = "north"

[listen]
port = 7401

[peers]
urls = ["palio://10.0.0.2", "palio://10.0.0.3:7402"]

[tls]
ca = "ca.pem"

[auth]
keys = "keys/"
token_file = "north.token"
broker_key = "north.key"

[auth.grants.south]
allow_publish = "TRUE"
allow_subscribe = "region = 'south'"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "palio.toml"
    path.write_text(EXAMPLE)
    return path


def origins(**sources: Any) -> dict[str, str]:
    return {each.name: each.origin for each in configure(**sources).settings}


def test_a_file_is_read_with_the_line_of_each_setting(file: Path) -> None:
    found = configure(file=file)
    configuration = found.configuration
    assert configuration.broker.name == "north"
    assert configuration.listen.port == 7401
    assert configuration.peers.urls == ("palio://10.0.0.2", "palio://10.0.0.3:7402")
    assert configuration.auth.grants == {
        "south": Grant(allow_publish="TRUE", allow_subscribe="region = 'south'")
    }
    named = {each.name: each.origin for each in found.settings}
    assert named["broker.name"] == f"{file}:3"
    assert named["listen.port"] == f"{file}:6"
    assert named["auth.grants"] == f"{file}:19"
    assert named["listen.host"] == "default"
    assert set(named) == set(known_settings())


def test_flags_win_over_the_environment_and_that_over_the_file_and_that_over_defaults(
    file: Path,
) -> None:
    sources: dict[str, dict[str, Any]] = {
        "file": {"file": file},
        "environment": {"environment": {"PALIO__LISTEN__PORT": "7402"}},
        "flags": {"flags": [Setting("listen.port", 7403, "--listen")]},
    }
    expected = {"file": 7401, "environment": 7402, "flags": 7403}
    for count in range(4):
        for chosen in itertools.combinations(sources, count):
            given = {key: value for name in chosen for key, value in sources[name].items()}
            port = configure(**given).configuration.listen.port
            assert port == (expected[chosen[-1]] if chosen else 7400)


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("PALIO__LISTEN__PORT", "0", "listen.port", 0),
        ("PALIO__HTTP__PORT", "8080", "http.port", 8080),
        ("PALIO__LISTEN__HOST", "localhost", "listen.host", "localhost"),
    ],
)
def test_the_environment_sets_values_of_any_type(
    variable: str, text: str, name: str, value: object
) -> None:
    found = configure(environment={variable: text, "HOME": "/", "PALIO_SEED": "1"})
    section, _, key = name.partition(".")
    assert getattr(getattr(found.configuration, section), key) == value
    assert origins(environment={variable: text})[name] == f"environment {variable}"


@pytest.mark.parametrize(
    "text", ["palio://[::1], palio://localhost", '["palio://[::1]", "palio://localhost"]']
)
def test_a_list_in_the_environment_has_commas_or_is_json(text: str) -> None:
    found = configure(environment={"PALIO__PEERS__URLS": text})
    assert found.configuration.peers.urls == ("palio://[::1]", "palio://localhost")
    assert configure(
        environment={"PALIO__WEBHOOKS__ALLOW": "public,10.0.0.0/8"}
    ).configuration.webhooks.allow == ("public", "10.0.0.0/8")


def test_a_table_in_the_environment_is_json() -> None:
    given = {
        "PALIO__AUTH__GRANTS": '{"b2": {"allow_subscribe": "TRUE"}}',
        "PALIO__TLS__CA": "ca.pem",
    }
    assert configure(environment=given).configuration.auth.grants == {
        "b2": Grant(allow_subscribe="TRUE")
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[listen]\n\nprot = 1\n", r"palio\.toml:3: .*listen\.prot; did you mean listen\.port\?"),
        ("[lisen]\nport = 1\n", r"palio\.toml:2: .*lisen\.port; did you mean listen\.port\?"),
        ("port = 1\n", r"palio\.toml:1: no setting is called port"),
        ("[zzz]\nqqq = 1\n", "palio config show lists them all"),
        ("[listen]\nport = 70000\n", r"palio\.toml:2: listen\.port = 70000: .*65535"),
        ("[listen]\nport = 'x'\n", r"palio\.toml:2: listen\.port = 'x': "),
        ("[listen]\nport = true\n", r"palio\.toml:2: listen\.port = True: "),
        ("[broker]\nrouting = 'magic'\n", r"palio\.toml:2\): 'magic' .* one of general, "),
        ("[limits]\nwindow_bytes = 1023\n", ">= 1024"),
        ("[limits]\nheartbeat_s = 0\n", ">= 0.001"),
        ("[limits]\nlease_s = 1e308\n", "<= 315360000"),
        ("[limits]\nhandshake_timeout_s = inf\n", "<= 315360000"),
        ("[limits]\npeer_grace_s = nan\n", r"`float` >= 0\.001"),
        ("[limits]\nclient_grace_s = -1\n", ">= 0.001"),
        (f"[limits]\nmemory_bytes = {10**18}\n", "<= 1125899906842624"),
        (f"[limits]\nmax_sessions = {10**12}\n", "<= 2147483648"),
        (f"[broker]\njournal_bytes = {10**18}\n", "<= 1125899906842624"),
        (
            "[auth.grants.x]\nallow_subscibe = 'TRUE'\n",
            r"palio\.toml:1: auth\.grants.*: allow_subscibe: .*did you mean allow_subscribe",
        ),
        ("[peers]\nurls = 'palio://a'\n", r"palio\.toml:2: peers\.urls"),
        ("[listen\n", r"palio\.toml: "),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_place(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "palio.toml"
    path.write_text(text)
    with pytest.raises(InvalidConfiguration, match=problem):
        configure(file=path)


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    [
        ("PALIO__LISTEN__PORT", "many", r"environment PALIO__LISTEN__PORT: listen\.port = 'many'"),
        ("PALIO__LISTEN__PROT", "1", r"environment PALIO__LISTEN__PROT: .*did you mean"),
        ("PALIO__LISTEN", "1", "no setting is called listen"),
        ("PALIO__AUTH__GRANTS", "{", r"auth\.grants: no JSON"),
    ],
)
def test_what_is_wrong_in_the_environment_is_told_with_its_name(
    variable: str, text: str, problem: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=problem):
        configure(environment={variable: text})


def refusal(**sources: Any) -> str | None:
    """What is wrong, in words; None if nothing is."""
    try:
        configure(**sources)
    except InvalidConfiguration as error:
        return str(error)
    return None


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_file_does_more_than_be_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(data)
    found = refusal(file=path)
    assert found is None or "any.toml" in found


@given(st.dictionaries(st.sampled_from(sorted(known_settings())), st.text(max_size=20), max_size=4))
def test_no_environment_does_more_than_be_refused(values: dict[str, str]) -> None:
    environment = {
        "PALIO__" + name.replace(".", "__").upper(): text for name, text in values.items()
    }
    found = refusal(environment=environment)
    assert found is None or any(name in found for name in values)


def test_every_setting_says_what_it_means() -> None:
    assert all(described(name) for name in known_settings())


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "palio.toml"
    file.write_text(
        '[listen]\nport = "x"\nprot = 1\n\n[broker]\nname = "a/b"\nrouting = "magic"\n'
        '\n[auth.grants.ann]\nnope = 1\n\n[multicast]\ngroups = "239.195.0.0/16"\n'
    )
    environment = {"PALIO__PEERS__URLS": "[1", "PALIO__LISTEN__HOST": "0.0.0.0"}
    with pytest.raises(InvalidConfiguration) as refused:
        configure(file=file, environment=environment)
    heading, *lines = str(refused.value).splitlines()
    assert heading == "7 settings are wrong"
    assert [line.strip().partition(" ")[0].rstrip(":") for line in lines] == [
        *(f"{file}:2", f"{file}:3", f"{file}:9", "environment"),  # values
        *("broker.name", "broker.routing", "listen.host"),  # what does not go together
    ]
    assert "auth.grants" not in lines[-1], "it is set, and only cannot be read"


def test_what_is_found_besides_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "palio.toml"
    file.write_text('[tls]\nkey = "north.key"\n')
    with pytest.raises(InvalidConfiguration) as refused:
        configure(file=file, find=lambda _: [("tls.key", "no such file; name it")])
    assert str(refused.value) == f"tls.key ({file}:2): no such file; name it"
