from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from palio.client.securing import tls_context
from palio.errors import InvalidConfiguration


def test_tls_is_by_scheme_or_by_argument() -> None:
    given = ssl.create_default_context()
    assert tls_context(None, is_secure=False) is None
    assert tls_context(False, is_secure=False) is None
    assert tls_context(given, is_secure=False) is given
    for tls in (None, True):
        context = tls_context(tls, is_secure=True)
        assert context is not None
        assert context.verify_mode == ssl.CERT_REQUIRED


def test_what_cannot_be_secured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="tls=False"):
        tls_context(False, is_secure=True)
    with pytest.raises(InvalidConfiguration, match="authorities"):
        tls_context(tmp_path / "missing.pem", is_secure=True)
