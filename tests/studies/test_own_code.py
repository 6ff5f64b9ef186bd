"""`palio_studies.own_code`: another text, name or place of a module is other code."""

from __future__ import annotations

import zipfile
from pathlib import Path

from palio_studies.own_code import digest_of, own_code


def _package(home: Path, modules: dict[str, str]) -> Path:
    for name, text in modules.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return home


def test_it_depends_on_the_modules_alone(tmp_path: Path) -> None:
    modules = {"a.py": "x = 1\n", "sub/b.py": "y = 2\n"}
    one = digest_of(_package(tmp_path / "one", modules))
    more = {**modules, "sub/__pycache__/b.pyc": "?", "notes.txt": "!"}
    assert digest_of(_package(tmp_path / "more", more)) == one
    others = (
        {"a.py": "x = 2\n", "sub/b.py": "y = 2\n"},
        {"a.py": "x = 1\n", "b.py": "y = 2\n"},
        {"a.py": "x = 1\n", "sub/c.py": "y = 2\n"},
        {"a.py": "x = 1\nsub/b.py y = 2\n"},
    )
    found = {digest_of(_package(tmp_path / str(n), each)) for n, each in enumerate(others)}
    assert len(found | {one}) == 5


def test_a_package_that_workers_get_as_a_zip_file_is_the_same_code(tmp_path: Path) -> None:
    home = _package(tmp_path / "one", {"a.py": "x = 1\n", "sub/b.py": "y = 2\n"})
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for path in home.rglob("*.py"):
            archive.write(path, f"one/{path.relative_to(home)}")
    assert digest_of(zipfile.Path(tmp_path / "all.zip", "one/")) == digest_of(home)


def test_a_module_that_goes_to_another_package_is_other_code(tmp_path: Path) -> None:
    one, two = ({"a.py": "x = 1\n", "b.py": "y = 2\n"}, {"c.py": "z = 3\n"})
    before = digest_of(_package(tmp_path / "p", one), _package(tmp_path / "q", two))
    two["b.py"] = one.pop("b.py")
    after = digest_of(_package(tmp_path / "r", one), _package(tmp_path / "s", two))
    assert before != after


def test_it_is_that_of_palio_and_its_studies() -> None:
    import palio
    import palio_studies

    packages = (Path(*each.__path__) for each in (palio, palio_studies))
    assert own_code() == digest_of(*packages)
