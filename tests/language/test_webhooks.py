from __future__ import annotations

import base64
import json

import pytest

from palio.errors import InvalidInput
from palio.language.webhooks import (
    LONGEST_DELAY_S,
    Delay,
    Verdict,
    secret_of,
    signature,
    structured,
    verdict,
)


@pytest.mark.parametrize(
    ("statuses", "wanted"),
    [
        ((200, 202, 204, 299), Verdict.TAKEN),
        ((408, 425, 429, 500, 502, 503, 599), Verdict.AGAIN),
        ((100, 301, 307, 400, 401, 404, 413, 422), Verdict.FINAL),
        ((410,), Verdict.GONE),
    ],
)
def test_what_an_answer_means(statuses: tuple[int, ...], wanted: Verdict) -> None:
    assert {verdict(status) for status in statuses} == {wanted}


def test_delays_double_up_to_the_longest() -> None:
    delay = Delay()
    waited = [delay.next_s() for _ in range(12)]
    assert waited[:3] == [0.5, 1.0, 2.0]
    assert waited[-2:] == [LONGEST_DELAY_S] * 2


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("", 0.5), ("7", 7), ("0.1", 0.5), ("-5", 0.5), ("1e9", LONGEST_DELAY_S), ("nan", 0.5),
     ("Wed, 21 Oct 2026 07:28:00 GMT", 0.5)],
)  # fmt: skip
def test_a_sink_may_say_how_long(said: str, seconds: float) -> None:
    assert Delay().next_s(said) == seconds


def test_one_event_or_a_batch() -> None:
    events = [{"id": "1"}, {"id": "2"}]
    headers, body = structured(events, as_batch=True)
    assert headers == {"content-type": "application/cloudevents-batch+json"}
    assert json.loads(body) == events
    headers, body = structured(events[:1], as_batch=False)
    assert headers == {"content-type": "application/cloudevents+json"}
    assert json.loads(body) == events[0]


def test_the_example_of_standard_webhooks() -> None:
    """The example is in the tests of its reference implementations."""
    secret = secret_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "text",
    ["", "whsec_", "whsec_%%%", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_é" * 9]
    + ["whsec_" + base64.b64encode(bytes(size)).decode() for size in (23, 65)],
)
def test_what_is_no_secret(text: str) -> None:
    with pytest.raises(InvalidInput, match="24 to 64 bytes in base64"):
        secret_of(text)


@pytest.mark.parametrize("size", [24, 64])
def test_the_shortest_and_the_longest_secret(size: int) -> None:
    assert secret_of("whsec_" + base64.b64encode(bytes(size)).decode()) == bytes(size)
