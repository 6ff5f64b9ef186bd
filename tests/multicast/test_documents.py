"""Plans in files."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode

import numpy as np
import pytest

from palio.errors import FileDamaged, LimitExceeded, NotSupported
from palio.multicast import documents
from palio.multicast.broker_sets import masks_of, words_of
from palio.multicast.documents import decode, encode, pack, unpack
from palio.multicast.epochs import MAX_GROUPS_IN_USE
from palio.multicast.limits import MAX_PACKED_CHARS, MAX_UNPACKED_BYTES
from palio.multicast.listed import ListedGroups
from palio.multicast.plans import received
from tests.multicast.plans import every_plan, some_traffic


def test_a_plan_that_was_read_sends_as_the_one_that_was_written() -> None:
    traffic = some_traffic(1)
    plans = every_plan(traffic, groups=64)
    assert len(plans) == 7
    for made in plans:
        again, report = decode(encode(made, {"sends": 1.0}))
        assert (again.method, again.brokers, report) == (made.method, made.brokers, {"sends": 1.0})
        assert again.group_count == made.group_count
        one, other = made.sends(traffic.sets), again.sends(traffic.sets)
        assert (masks_of(received(made, one), 9) == masks_of(received(again, other), 9)).all()
        assert np.array_equal(one.groups, other.groups)


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 2},
        {"method": "nonsense"},
        {"method": "clustered"},
        {"brokers": []},
        {"brokers": ["b1", "b1"]},
        {"brokers": [f"b{place}" for place in range(5_000)]},
        {"content": {"groups": [[0]]}},
        {"content": {"groups": "b1"}},
        {"content": {"groups": "AQ=="}},
        {"content": {"groups": "AAA="}},
        {"content": {"groups": "AAI="}},
        {"content": {"groups": "AQA=", "prices": [1e999, "x"]}},
        {"content": {"groups": "AQA=", "prices": [1.0]}},
        {"method": "neighbours", "content": {"graph": {"b0": {"b1": "far"}}}},
        {"method": "neighbours", "content": {"graph": {"b0": 1}}},
        {"method": "clustered", "content": {"clusters": [["b1"]]}},
        {"method": "clustered", "content": {"clusters": [[0.0, *range(1, 9)]]}},
        {"method": "clustered", "content": {"clusters": [[False, True, *range(2, 9)]]}},
        {"method": "clustered", "content": {"clusters": [[*range(9)]], "threshold": 0}},
        {"content": {}},
        {"more": 1},
    ],
)
def test_what_is_no_plan_is_refused(damage: dict[str, object]) -> None:
    (made,) = [each for each in every_plan(some_traffic(1)) if each.method == "flooding"]
    document = {**json.loads(encode(made)), **damage}
    with pytest.raises(FileDamaged, match="no plan"):
        decode(json.dumps(document).encode())
    with pytest.raises(FileDamaged, match="no plan"):
        decode(b"[")
    with pytest.raises(FileDamaged, match="no plan"):
        decode(encode(made).replace(b'"/wE="', b"[" * 100_000))


def test_no_method_has_more_groups_than_are_asked_for() -> None:
    for made in every_plan(some_traffic(1)):
        if made.method == "neighbours":  # its groups are known to neighbours only
            continue
        data = encode(made)
        assert decode(data, made.group_count + 1)[0].group_count == made.group_count
        assert decode(data, made.group_count)[0].group_count == made.group_count
        with pytest.raises(FileDamaged, match="number of groups"):
            decode(data, made.group_count - 1)


def some_groups(groups: int, brokers: int, seed: int = 0) -> ListedGroups:
    masks = np.random.default_rng(seed).random((groups, brokers)) < 0.3
    masks[:, 0] = True
    return ListedGroups("ideal", tuple(f"broker{each}" for each in range(brokers)), words_of(masks))


def test_a_plan_that_was_unpacked_sends_as_the_one_that_was_packed() -> None:
    traffic = some_traffic(1)
    for made in every_plan(traffic):
        if made.method == "neighbours":
            with pytest.raises(NotSupported, match="neighbours"):
                pack(made)
            with pytest.raises(NotSupported, match="neighbours"):
                unpack(b64encode(zlib.compress(encode(made))).decode())
            continue
        again, _ = unpack(pack(made))
        assert (again.method, again.brokers) == (made.method, made.brokers)
        one, other = made.sends(traffic.sets), again.sends(traffic.sets)
        assert np.array_equal(one.groups, other.groups)
        assert np.array_equal(made.members(one.groups), again.members(other.groups))


def test_a_thousand_groups_of_a_hundred_brokers_take_twenty_kilobytes() -> None:
    assert len(pack(some_groups(1_000, 100))) < 20_000


def test_a_plan_in_use_has_so_many_groups() -> None:
    for count in (MAX_GROUPS_IN_USE - 1, MAX_GROUPS_IN_USE):
        assert unpack(pack(some_groups(count, 8)))[0].group_count == count
    larger = some_groups(MAX_GROUPS_IN_USE + 1, 8)
    with pytest.raises(LimitExceeded, match="MAX_GROUPS_IN_USE"):
        pack(larger)
    with pytest.raises(FileDamaged, match="number of groups"):
        unpack(b64encode(zlib.compress(encode(larger))).decode())


def test_a_plan_in_use_has_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = some_groups(100, 100)
    size = len(encode(made))
    text = pack(made)
    for most in (size + 1, size):
        monkeypatch.setattr(documents, "MAX_UNPACKED_BYTES", most)
        assert pack(made) == text
    monkeypatch.setattr(documents, "MAX_UNPACKED_BYTES", size - 1)
    with pytest.raises(LimitExceeded, match="MAX_UNPACKED_BYTES"):
        pack(made)
    with pytest.raises(FileDamaged, match="at most"):
        unpack(text)
    monkeypatch.undo()
    for most in (len(text) + 1, len(text)):
        monkeypatch.setattr(documents, "MAX_PACKED_CHARS", most)
        unpack(text)
    monkeypatch.setattr(documents, "MAX_PACKED_CHARS", len(text) - 1)
    with pytest.raises(FileDamaged, match="at most"):
        unpack(text)


def test_the_most_bytes_fit_into_the_most_characters() -> None:
    worst = np.random.default_rng(1).bytes(MAX_UNPACKED_BYTES)
    assert len(b64encode(zlib.compress(worst, 9))) <= MAX_PACKED_CHARS


def test_a_text_that_is_no_plan_is_refused() -> None:
    text = pack(some_groups(10, 10))
    data = b64decode(text)
    wrong = [
        "",
        "x",
        "\N{SNOWMAN}",
        text[:-8],
        text[:20] + text[24:],
        b64encode(data + b"more").decode(),
        b64encode(data[:-1]).decode(),
        b64encode(zlib.compress(bytes(100 * MAX_UNPACKED_BYTES))).decode(),
        b64encode(zlib.compress(b"{}")).decode(),
        b64encode(encode(some_groups(10, 10))).decode(),
    ]
    for each in wrong:
        with pytest.raises(FileDamaged):
            unpack(each)
