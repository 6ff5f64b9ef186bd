"""Why no broker answers at an address, in words that say what to look at."""

from __future__ import annotations

from errno import ECONNREFUSED
from typing import Final

__all__ = ["CLOSED", "why_not"]


CLOSED: Final = "the broker closed the connection"
"""What is said of a connection that ended without a reason."""


def why_not(error: BaseException, url: str) -> str:
    """What keeps a connection to an address from being made.

    >>> why_not(ConnectionRefusedError(), "palio://b1:7400")
    'nobody listens there; is the broker running, and is this its port?'
    """
    said = str(error)
    if isinstance(error, ConnectionRefusedError) or f"[Errno {ECONNREFUSED}]" in said:
        return "nobody listens there; is the broker running, and is this its port?"
    if isinstance(error, TimeoutError):
        return "no answer in time; is this the port for palio://? HTTP has one of its own"
    reason = getattr(error, "reason", "") or ""  # of TLS
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING"):
        return "no TLS is spoken there; palio:// is the address of a broker without"
    if reason == "CERTIFICATE_VERIFY_FAILED":
        detail = getattr(error, "verify_message", "") or reason
        return f"its certificate is not trusted ({detail}); name who vouches for it (tls=, --ca)"
    if not said:
        said = type(error).__name__
    if said == CLOSED and url.startswith("palio://"):
        return f"{said} before it said a word; if it wants TLS, the address is palios://"
    return said
