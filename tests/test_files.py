from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from palio import files
from palio.errors import UnsafeFile


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("any_umask")
def test_what_is_made_is_for_its_owner_only(tmp_path: Path) -> None:
    home = files.make_directory(tmp_path / "a" / "b")
    inner = files.make_inside(home, "c")
    with files.create(home / "made") as file:
        file.write(b"x")
    os.close(files.open_own(home / "own"))
    with files.replaced(home / "whole") as file:
        file.write(b"y")
    assert [mode(each) for each in (tmp_path / "a", home, inner)] == [0o700] * 3
    assert [mode(home / name) for name in ("made", "own", "whole")] == [0o600] * 3
    assert mode(files.fresh_directory(home)) == 0o700
    assert files.file_mode_in(home) == 0o600


@pytest.mark.usefixtures("any_umask")
@pytest.mark.parametrize(
    ("given", "directory", "file"),
    [(0o700, 0o700, 0o600), (0o750, 0o750, 0o640), (0o755, 0o755, 0o644), (0o777, 0o755, 0o644)],
)
def test_what_is_made_inside_has_the_readers_of_its_directory(
    tmp_path: Path, given: int, directory: int, file: int
) -> None:
    home = tmp_path / "shared"
    home.mkdir()
    home.chmod(given)
    assert files.make_directory(home) == home
    assert mode(home) == given
    assert mode(files.make_inside(home, "inner")) == directory
    assert mode(files.fresh_directory(home)) == directory
    assert files.file_mode_in(home) == file


def test_a_group_writes_where_it_may_write_to_the_directory_above(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    assert mode(files.make_inside(tmp_path, "pins", group_writes=True)) == 0o770
    tmp_path.chmod(0o777)
    assert mode(files.make_inside(tmp_path, "more", group_writes=True)) == 0o775


def test_no_link_is_written_through(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link, folder = tmp_path / "link", tmp_path / "folder"
    link.symlink_to(precious)
    folder.symlink_to(elsewhere)
    with pytest.raises(UnsafeFile, match="link"):
        files.open_own(link)
    with pytest.raises(UnsafeFile, match="link"):
        files.append(link, "more")
    with pytest.raises(UnsafeFile, match="folder"):
        files.make_inside(tmp_path, "folder")
    with pytest.raises(FileExistsError):
        files.create(link)
    (tmp_path / ".whole.unfinished").symlink_to(precious)
    with files.replaced(tmp_path / "whole") as file:
        file.write(b"new")
    with files.replaced(link) as file:
        file.write(b"new")
    assert precious.read_text() == "precious"
    assert not link.is_symlink()
    assert link.read_text() == (tmp_path / "whole").read_text() == "new"
    assert not list(elsewhere.iterdir())


def test_a_second_name_or_no_file_at_all_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    os.link(tmp_path / "precious", tmp_path / "second")
    os.mkfifo(tmp_path / "pipe")
    for name in ("second", "pipe"):
        with pytest.raises(UnsafeFile, match=name):
            files.open_own(tmp_path / name)
    with pytest.raises(UnsafeFile, match="pipe"):
        files.append(tmp_path / "pipe", "x")
    with pytest.raises(UnsafeFile, match="no directory"):
        files.make_directory(tmp_path / "precious")


def test_a_file_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("kept")
    (tmp_path / "old").chmod(0o666)
    os.close(files.open_own(tmp_path / "old"))
    assert mode(tmp_path / "old") == 0o600
    assert (tmp_path / "old").read_text() == "kept"


def test_a_name_that_is_taken_is_left_if_so_asked(tmp_path: Path) -> None:
    (tmp_path / "pin").write_text("first")
    with pytest.raises(FileExistsError), files.replaced(tmp_path / "pin", replace=False) as file:
        file.write(b"second")
    assert (tmp_path / "pin").read_text() == "first"
    assert [each.name for each in tmp_path.iterdir()] == ["pin"]


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("t")
    for refused in (0o644, 0o640, 0o604, 0o660):
        secret.chmod(refused)
        with pytest.raises(UnsafeFile, match=rf"the token .* \(mode {refused:04o}\); chmod 600"):
            files.read_secret(secret, "the token")
    for taken in (0o600, 0o400):
        secret.chmod(taken)
        assert files.read_secret(secret, "the token") == b"t"


def test_a_mounted_secret_may_be_read_by_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "token"
    secret.write_text("t")
    monkeypatch.setattr(os, "geteuid", lambda: secret.stat().st_uid + 1)
    secret.chmod(0o440)
    assert files.read_secret(secret, "the token") == b"t"
    secret.chmod(0o444)
    with pytest.raises(UnsafeFile):
        files.read_secret(secret, "the token")


# --- turns ---


def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with files.held(lock) as first, files.held(lock, wait=False) as second:
        assert (first, second) == (True, False)
    with files.held(lock, wait=False) as third:
        assert third
    assert mode(lock) == 0o600


def test_who_fails_gives_the_lock_back(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), files.held(tmp_path / "lock"):
        raise ZeroDivisionError
    with files.held(tmp_path / "lock", wait=False) as mine:
        assert mine


def test_a_lock_through_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "other")
    with pytest.raises(UnsafeFile, match="is a link"), files.held(tmp_path / "lock"):
        pass
    assert not (tmp_path / "other").exists()
