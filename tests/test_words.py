"""The project's old dialect, private words where the field has names, stays out of its prose.

Words count whole, in any case; in pages outside code. The limits only go down.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FIGURES: Final = ROOT / "docs" / "measured"
PAGES: Final = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "examples").glob("[a-z]*/README.md")),
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if FIGURES not in path.parents),
]
SOURCES: Final = sorted((ROOT / "src").rglob("*.py"))

DIALECT: Final = {
    "send, notify, report": "tell tells told telling untold",
    "receive, deliver": "hear hears heard hearing hearsay",
    "state, advertise, claim": "say says said saying",
    "every client that, the caller": "whoever whomever whom",
    "incarnation": "life lives",
    "fallback link": "stand-in given_back",
    "has an alternate path": "goes_round go_round",
    "sweep, discover": "looks_round look_round",
    "session": "party parties",
    "warning, source": "complaint complaints complain complains culprit",
    "wait, cork": "bide bides",
    "supersede": "outdo outdone",
    "block": "shun shunned",
    "again, from the start": "anew",
    "so that ... not": "lest",
    "at most": "at_the_most",
    "reject": "turned_away turns_away",
    "continue": "go_on goes_on went_on",
    "as far as": "so_far_as",
    "path": "ways",
    "backlog, pending, received": "what_waits what_came what_comes what_is_known",
}
"""Words that leave, by those that replace them. An underscore is a blank."""

EXCEPTIONS: Final = {
    "life of an event": ("README.md", "docs/index.md", "docs/concepts/life-of-an-event.md")
}
"""Ordinary uses, by phrase and the files that have them."""

DOCS_MAX: Final = 10
"""The most occurrences in pages."""

SRC_MAX: Final = 20
"""The most occurrences in sources, names included."""

VAGUE: Final = ("what", "who", "whoever", "whether", "see", "of")
"""Openings of docstrings without a verb or noun."""

VAGUE_SHARE_MAX: Final = 0.03

FENCED: Final = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"`[^`\n]*`|\]\([^)\s]*\)|^    .*$|<!--.*?-->", re.MULTILINE)


@cache
def dialect() -> re.Pattern[str]:
    words = " ".join(DIALECT.values()).split()
    forms = "|".join(word.replace("_", r"\s+") for word in words)
    return re.compile(rf"(?<![\w-])(?:{forms})(?![\w-])", re.IGNORECASE)


def prose_of(path: Path) -> str:
    """A page without code, links' targets and phrases that it may have."""
    text = CODE.sub("", FENCED.sub("", path.read_text("utf-8")))
    for phrase, files in EXCEPTIONS.items():
        if path.relative_to(ROOT).as_posix() in files:
            text = re.sub(phrase, "", text, flags=re.IGNORECASE)
    return text


def found_in(texts: dict[Path, str]) -> Counter[str]:
    """Occurrences by file."""
    counts = {path: len(dialect().findall(text)) for path, text in texts.items()}
    return Counter({str(path.relative_to(ROOT)): n for path, n in counts.items() if n})


def test_pages_have_hardly_a_word_of_the_old_dialect() -> None:
    found = found_in({path: prose_of(path) for path in PAGES})
    assert found.total() < DOCS_MAX, found.most_common(20)


def test_sources_have_fewer_and_fewer_words_of_the_old_dialect() -> None:
    found = found_in({path: path.read_text("utf-8") for path in SOURCES})
    assert found.total() <= SRC_MAX, found.most_common(20)


def test_every_exception_is_used() -> None:
    for phrase, files in EXCEPTIONS.items():
        for file in files:
            assert re.search(phrase, (ROOT / file).read_text("utf-8"), re.IGNORECASE), file


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [
        node
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, kinds)
    ]
    openings = [
        doc.split()[0].lower().strip(".,:`") for node in nodes if (doc := ast.get_docstring(node))
    ]
    vague = sum(opening in VAGUE for opening in openings)
    assert vague < VAGUE_SHARE_MAX * len(openings), (vague, len(openings))


def test_words_count_whole_and_in_any_case() -> None:
    text = "Said; unsaid, a bidet, said_facts; tells\nTURNED  AWAY, look round; stand-ins"
    assert [word.lower() for word in dialect().findall(text)] == [
        "said",
        "tells",
        "turned  away",
        "look round",
    ]
