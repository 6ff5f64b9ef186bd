from __future__ import annotations

import pytest

from palio.protocol.writing import write


class Note:
    """A transport that notes how it was called."""

    def __init__(self, *, is_closed: bool) -> None:
        self.calls: list[tuple[str, object]] = []
        self._is_closed = is_closed

    def is_closing(self) -> bool:
        return self._is_closed

    def write(self, data: object) -> None:
        self.calls.append(("write", data))

    def writelines(self, list_of_data: object) -> None:
        self.calls.append(("writelines", list_of_data))


@pytest.mark.parametrize(
    ("buffers", "call"),
    [([b"a"], ("write", b"a")), ([b"a", b"b"], ("writelines", [b"a", b"b"]))],
)
def test_buffers_are_written_in_one_call(buffers: list[bytes], call: tuple[str, object]) -> None:
    transport = Note(is_closed=False)
    assert write(transport, buffers)
    assert transport.calls == [call]


def test_what_is_closing_takes_nothing() -> None:
    transport = Note(is_closed=True)
    assert not write(transport, [b"a"])
    assert transport.calls == []
    assert not write(None, [b"a"])
