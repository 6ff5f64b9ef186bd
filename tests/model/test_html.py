from __future__ import annotations

import palio
from palio.model import html


def test_nothing_of_a_filter_is_markup() -> None:
    shown = html.code(palio.parse("note = '<img src=x onerror=alert(1)>' AND x < :limit"))
    assert "<img" not in shown
    assert "<b>:limit</b>" in shown
    assert html.code("a = '<b>:x</b>'") == "<code>a = '&lt;b&gt;:x&lt;/b&gt;'</code>"


async def test_notebooks_show_filters_explanations_and_subscriptions() -> None:
    filter = palio.parse("price < :limit AND symbol = '<b>'")
    assert filter._repr_html_().startswith("<code>")
    explained = filter.bind({"limit": 5})._repr_html_()
    assert "&lt; 5" in explained
    pattern = palio.parse("a > 1 THEN b > 2 WITHIN 30s")
    assert "WITHIN 30s" in pattern._repr_html_()
    explanation = palio.parse_filter("price < 5").explain({"price": "<7>"})
    assert "no match" in explanation._repr_html_()
    assert "<7>" not in explanation._repr_html_()
    async with palio.Bus() as bus:
        sub = await bus.subscribe(filter, {"limit": "<script>"})
        shown = sub._repr_html_()
        assert "<script>" not in shown
        assert "<th>:limit</th><td>&#x27;&lt;script&gt;&#x27;</td>" in shown
        assert "<th>pending</th><td>0</td>" in shown
