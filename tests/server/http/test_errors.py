from __future__ import annotations

import json
from pathlib import Path

import pytest

from palio import errors
from palio.errors import LimitExceeded, NotAuthenticated, PalioError, ParseError, Unreachable
from palio.protocol.messages import Failure
from palio.server.http.access import Encoded
from palio.server.http.errors import (
    MethodNotAllowed,
    Misdirected,
    NotFound,
    answer,
    described,
    status_of,
)
from palio.server.local_client import Declined
from palio.server.webhooks import webhook

ELSEWHERE: dict[str, type[PalioError]] = {
    "Encoded": Encoded,
    "MethodNotAllowed": MethodNotAllowed,
    "Misdirected": Misdirected,
    "NotFound": NotFound,
    "NotTaken": webhook.NotTaken,
}


def test_the_table_of_the_page_holds() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "http.md").read_text(
        encoding="utf-8"
    )
    rows = page.split("| status | `type` |\n|---|---|\n")[1].split("\n\n")[0].splitlines()
    assert len(rows) == 10
    for row in rows:
        status, kinds = (cell.strip() for cell in row.strip("|").split(" | "))
        for name in kinds.split("`")[1::2]:
            kind = ELSEWHERE.get(name) or getattr(errors, name)
            assert status_of(kind) == int(status)


@pytest.mark.parametrize("name", ["ParseError", "InvalidBinding", "InvalidEvent", "InvalidFilter"])
def test_bad_input_is_400(name: str) -> None:
    assert status_of(getattr(errors, name)) == 400


def test_an_answer_says_what_and_where() -> None:
    parse = ParseError("no", text="x", line=1, column=2)
    body = json.loads(bytes(answer(parse).body))
    assert body["error"] == {"type": "ParseError", "message": str(parse), "line": 1, "column": 2}
    limit = described(LimitExceeded("it", limit="MAX_IT", maximum=5))
    assert (limit["limit"], limit["maximum"]) == ("MAX_IT", 5)
    assert answer(NotAuthenticated("who?")).headers["www-authenticate"] == "Bearer"
    assert answer(Unreachable("gone")).status_code == 503


def test_what_the_node_declined_is_told_as_its_own() -> None:
    failure = Failure("NotPermitted", "no", {"more": 1})
    expected = {"type": "NotPermitted", "message": "no", "more": 1}
    assert described(failure) == described(Declined(failure)) == expected
    assert answer(Declined(failure)).status_code == 403
    assert Declined(Failure("Nonsense", "no")).type is PalioError
    assert Declined(Failure("__all__", "no")).type is PalioError
