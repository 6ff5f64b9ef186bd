from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from palio.errors import InvalidConfiguration
from palio.node.authority import NO_LIMITS, NamedAuthority, OpenAuthority
from palio.node.effects import Moment
from palio.server.credentials import expiries, load, mistakes
from palio.server.settings import (
    Auth,
    Broker,
    Configuration,
    Grant,
    Http,
    Listen,
    Multicast,
    Tls,
)
from palio.server.tokens import TokenAuthority
from tests.node.signing import Keyring
from tests.server.certificates import certificate

NORTH: Final = Broker(name="north")


def told(**sections: Any) -> dict[str, str]:
    """Each setting that is wrong, with its problem."""
    return dict(mistakes(Configuration(**{"broker": NORTH} | sections)))


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    """A certificate, its key and who vouches for it."""
    ca = certificate(tmp_path, "ca")
    north = certificate(tmp_path, "north", ca)
    return Tls(cert=str(north), key=str(north.with_suffix(".key")), ca=str(ca))


@pytest.fixture
def auth(tmp_path: Path) -> Auth:
    """Keys of a network, and the token of the broker north."""
    (tmp_path / "keys").mkdir()
    return Keyring(tmp_path / "keys").equip("north")


def test_all_is_loaded_if_nothing_is_wrong(tls: Tls, auth: Auth, tmp_path: Path) -> None:
    broker = Broker(name="north", data_dir=str(tmp_path / "not" / "there" / "yet"))
    given = Configuration(broker=broker, tls=tls, auth=auth, http=Http(port=0))
    assert mistakes(given) == []
    loaded = load(given)
    assert None not in (loaded.accepting, loaded.serving, loaded.dialling)
    assert isinstance(loaded.authority, TokenAuthority)
    assert loaded.identity.token
    assert set(expiries(tls, loaded.identity)) == {"certificate", "token"}
    assert not (tmp_path / "not").exists(), "a check makes nothing"


def test_keys_and_revocations_that_are_not_there(tmp_path: Path) -> None:
    found = told(auth=Auth(keys=str(tmp_path / "none"), revoked=str(tmp_path / "list")))
    assert set(found) == {"auth.keys", "auth.revoked"}
    assert "No such file or directory; name a public key" in found["auth.keys"]
    assert "an empty file revokes none" in found["auth.revoked"]


def test_a_key_of_another_certificate(tls: Tls, tmp_path: Path) -> None:
    other = certificate(tmp_path, "south")
    found = told(tls=Tls(cert=tls.cert, key=str(other.with_suffix(".key")), ca=tls.ca))
    assert found == {
        "tls.key": "it cannot be loaded (KEY_VALUES_MISMATCH); give the key of tls.cert, both in "
        "PEM, unencrypted"
    }


def test_certificates_that_are_none(tls: Tls, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no certificate")
    no_key = told(tls=Tls(cert=tls.cert, key=str(tmp_path / "text")))["tls.key"]
    assert no_key.startswith("it cannot be loaded (not PEM); give the key of tls.cert")
    nowhere = str(tmp_path / "none.pem")
    assert set(told(tls=Tls(cert=tls.cert, key=tls.key, ca=str(tmp_path / "text")))) == {"tls.ca"}
    found = told(tls=Tls(cert=nowhere, key=nowhere, ca=nowhere))
    assert set(found) == {"tls.cert", "tls.key", "tls.ca"}
    assert found["tls.ca"] == (
        f"cannot read {nowhere!r}: No such file or directory; name a file that this user may read"
    )


def test_a_key_of_another_token(auth: Auth, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    south = Keyring(tmp_path / "others").equip("south")
    wrong = Auth(keys=auth.keys, token_file=auth.token_file, broker_key=south.broker_key)
    assert "is bound to another key than this one; " in told(auth=wrong)["auth.broker_key"]
    unknown = Auth(keys=auth.keys, token_file=south.token_file, broker_key=south.broker_key)
    assert "the broker 'south', and this is 'north'; " in told(auth=unknown)["auth.token_file"]
    south_here = told(broker=Broker(name="south"), auth=unknown)
    assert south_here["auth.token_file"].endswith("which is unknown; see auth.keys")
    shutil.copy(auth.broker_key, tmp_path / "text")
    text = Auth(keys=auth.keys, token_file=str(tmp_path / "text"), broker_key=auth.broker_key)
    assert set(told(auth=text)) == {"auth.token_file"}


@pytest.mark.parametrize("within", ["", "far/below"])
def test_a_data_directory_that_cannot_be_made(tmp_path: Path, within: str) -> None:
    (tmp_path / "file").write_text("")
    found = told(broker=Broker(name="north", data_dir=str(tmp_path / "file" / within)))
    assert found["broker.data_dir"] == (
        f"{str(tmp_path / 'file')!r} is no directory; give a directory that this user may write"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_data_directory_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    found = told(broker=Broker(name="north", data_dir=str(tmp_path / "data")))
    assert "may not be written" in found["broker.data_dir"]


def test_a_group_key_and_grants_are_read_too(tmp_path: Path) -> None:
    groups = Multicast(groups="239.195.0.0/16", key=str(tmp_path / "none"))
    flooded = Broker(name="north", routing="flooded")
    assert set(told(broker=flooded, multicast=groups)) == {"multicast.key"}
    grants = {"b": Grant(allow_subscribe="x >"), "c": Grant(limits={"nope": 1.0})}
    found = told(auth=Auth(grants=grants), tls=Tls(ca=str(certificate(tmp_path, "ca"))))
    assert set(found) == {"auth.grants.b", "auth.grants.c"}
    assert "column 4" in found["auth.grants.b"]


def test_all_mistakes_are_one_error(tmp_path: Path) -> None:
    given = Configuration(
        listen=Listen(host="0.0.0.0"),  # refused
        auth=Auth(keys=str(tmp_path / "none")),
    )
    with pytest.raises(InvalidConfiguration) as refused:
        load(given)
    heading, first, second = str(refused.value).splitlines()
    assert heading == "2 settings are wrong"
    assert first.startswith("  listen.host: 0.0.0.0 can be reached from other machines; set tls")
    assert second.startswith("  auth.keys: cannot read the key ")


def test_without_tokens_and_certificates_everyone_may_do_everything(tmp_path: Path) -> None:
    assert isinstance(load(Configuration()).authority, OpenAuthority)
    granted = Grant(monitor=True, operate=True, identities=("ann",), limits={"sessions": 7})
    grants = {"b2": Grant(allow_subscribe="x = 1"), "ops": granted}
    trusted = Tls(ca=str(certificate(tmp_path, "ca")))
    named = load(Configuration(auth=Auth(grants=grants), tls=trusted)).authority
    assert isinstance(named, NamedAuthority)
    principal = named.authenticate("", "b2", Moment(0.0, 0))
    assert str(principal.allow_subscribe) == "x = 1"
    assert str(principal.allow_publish) == "FALSE"
    assert not principal.may_monitor
    assert not principal.may_operate
    assert not principal.identities
    assert principal.limits == NO_LIMITS
    ops = named.authenticate("", "ops", Moment(0.0, 0))
    assert ops.limits.sessions == 7
    assert (ops.may_monitor, ops.may_operate, ops.identities) == (True, True, frozenset(("ann",)))
