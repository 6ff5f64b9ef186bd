"""The headers of a webhook call, and the meaning of its answer. Other modules make the call.

1. 2xx is taken. 410 means that the sink wants no more, ever.
2. 408, 425, 429, 5xx and no answer are tried again, after twice as long each time, or as long as
   `Retry-After` asks for. Any other answer is final.
3. With a secret a call is signed as Standard Webhooks has it (standardwebhooks.com), so that a sink
   knows who calls, and that a call is not an old one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

from palio.errors import InvalidInput
from palio.language.http_events import BATCH_TYPE, JSON_TYPE

FIRST_DELAY_S: Final = 0.5
LONGEST_DELAY_S: Final = 300.0

SECRET_BYTES: Final = (24, 64)
"""The shortest and the longest secret of Standard Webhooks."""

_SECRET: Final = "whsec_"

_AGAIN: Final = frozenset({408, 425, 429})


class Verdict(Enum):
    """The outcome of a call."""

    TAKEN = "taken"
    AGAIN = "again"
    FINAL = "final"
    GONE = "gone"


def verdict(status: int) -> Verdict:
    """The verdict on a call by the status of its answer.

    >>> [verdict(status).value for status in (204, 429, 503, 404, 410)]
    ['taken', 'again', 'again', 'final', 'gone']
    """
    if 200 <= status < 300:
        return Verdict.TAKEN
    if status == 410:
        return Verdict.GONE
    return Verdict.AGAIN if status in _AGAIN or status >= 500 else Verdict.FINAL


class Delay:
    """Seconds to wait before a call is tried again.

    >>> delay = Delay()
    >>> [delay.next_s(), delay.next_s(), delay.next_s("7"), delay.next_s()]
    [0.5, 1.0, 7.0, 14.0]
    """

    def __init__(self) -> None:
        self._next_s = FIRST_DELAY_S

    def next_s(self, retry_after: str = "") -> float:
        """Seconds; `retry_after` is that header of the answer, empty if it has none."""
        seconds = max(self._next_s, _asked_s(retry_after))
        self._next_s = min(2 * seconds, LONGEST_DELAY_S)
        return seconds


def _asked_s(retry_after: str) -> float:
    """Seconds that a sink asks for; a date, which it may give too, counts as none."""
    try:
        asked = float(retry_after)
    except ValueError:
        return 0.0
    return min(asked, LONGEST_DELAY_S) if asked > 0 else 0.0  # NaN is not


def structured(
    documents: Sequence[Mapping[str, Any]], *, as_batch: bool
) -> tuple[dict[str, str], bytes]:
    """Headers and body of a call with CloudEvents in JSON: a batch, or one by itself."""
    if as_batch:
        return {"content-type": BATCH_TYPE}, json.dumps(list(documents)).encode()
    return {"content-type": JSON_TYPE}, json.dumps(documents[0]).encode()


def secret_of(text: str) -> bytes:
    """A secret as it is written: `whsec_` and 24 to 64 bytes in base64."""
    try:
        secret = base64.b64decode(text.removeprefix(_SECRET), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    least, most = SECRET_BYTES
    if not text.startswith(_SECRET) or not least <= len(secret) <= most:
        raise InvalidInput(f"a secret is written {_SECRET} and {least} to {most} bytes in base64")
    return secret


def signature(secret: bytes, id: str, timestamp: int, body: bytes) -> str:
    """The signature of a call: proof that the caller has the secret.

    >>> signature(b"0" * 24, "msg_1", 1614265330, b"{}")[:9]
    'v1,3T1TQC'
    """
    signed = b".".join((id.encode(), str(timestamp).encode(), body))
    digest = hmac.new(secret, signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"
