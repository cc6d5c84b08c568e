"""Places for stores: nobody else can write there, or swap what is on the way there."""

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from toolcrib_cli.errors import CliError
from toolcrib_cli.local.store import Store
from toolcrib_cli.private_folders import shared_place
from toolcrib_cli.session_store.database import FILE, Database, StoreError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
NOBODY = 65534


def of(path: Path) -> str:
    return "" if (place := shared_place(path)) is None else place.problem


def folder(at: Path, mode: int) -> Path:
    at.mkdir()
    at.chmod(mode)
    return at


def test_a_private_folder_and_files_in_it_are_safe_also_below_a_sticky_one(tmp_path: Path) -> None:
    own = folder(folder(tmp_path / "tmp", 0o1777) / "own", 0o700)
    (own / "file").write_text("x")
    assert [of(own), of(own / "file"), of(own / "later"), of(own / "later" / "still")] == [""] * 4


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o2775, 0o702, 0o722])
def test_a_folder_that_others_can_write_is_not_safe(tmp_path: Path, mode: int) -> None:
    place = folder(tmp_path / "shared", mode)
    says = f"others can write to {place} (mode {mode:o})"
    assert of(place) == says
    place.chmod(mode & ~0o022)
    assert of(place) == ""


def test_a_file_in_a_sticky_folder_is_not_safe_whether_or_not_it_exists(tmp_path: Path) -> None:
    place = folder(tmp_path / "tmp", 0o1777)
    assert f"others can write to {place} (mode 1777)" in of(place / "file")
    (place / "file").write_text("x")
    assert f"others can write to {place} (mode 1777)" in of(place / "file")


def test_a_folder_on_the_way_that_others_can_write_is_named(tmp_path: Path) -> None:
    upper = folder(tmp_path / "upper", 0o700)
    own = folder(upper / "own", 0o700)
    upper.chmod(0o777)
    assert of(own / "file") == f"others can write to {upper} (mode 777)"


def test_on_the_way_a_folder_of_the_users_own_group_is_safe(tmp_path: Path) -> None:
    user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(tmp_path.stat().st_gid)
    own = group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    upper = folder(tmp_path / "upper", 0o775)
    inner = folder(upper / "inner", 0o700)
    assert of(inner) == ("" if own else f"others can write to {upper} (mode 775)")
    assert of(upper) == f"others can write to {upper} (mode 775)"
    if os.geteuid() == 0:
        os.chown(upper, -1, NOBODY)
        assert of(inner) == f"others can write to {upper} (mode 775)"


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_file_that_others_can_write_is_not_safe(tmp_path: Path, mode: int) -> None:
    (file := tmp_path / "file").write_text("x")
    file.chmod(mode)
    assert f"others can write to {file}" in of(file)


def test_a_link_is_safe_only_if_where_it_lies_and_where_it_leads_are(tmp_path: Path) -> None:
    shared, own = folder(tmp_path / "shared", 0o777), folder(tmp_path / "own", 0o700)
    (own / "inner").mkdir()
    (shared / "to-own").symlink_to(own)
    (own / "to-shared").symlink_to(shared)
    (own / "to-inner").symlink_to("inner")
    (own / "round").symlink_to("round")
    assert f"others can write to {shared}" in of(shared / "to-own" / "file")
    assert f"others can write to {shared}" in of(own / "to-shared")
    assert of(own / "to-inner" / "file") == ""
    assert of(own / "to-inner" / ".." / "to-shared") == of(own / "to-shared")
    assert "more than 40 links" in of(own / "round")


@as_root
def test_what_belongs_to_somebody_else_is_not_safe(tmp_path: Path) -> None:
    own = folder(tmp_path / "own", 0o700)
    (own / "file").write_text("x")
    (own / "link").symlink_to("file")
    os.chown(own / "file", NOBODY, -1)
    os.chown(own / "link", NOBODY, -1, follow_symlinks=False)
    assert of(own / "file") == f"{own / 'file'} belongs to another user (uid {NOBODY})"
    assert of(own / "link") == f"{own / 'link'} belongs to another user (uid {NOBODY})"
    os.chown(own, NOBODY, -1)
    assert of(own / "file") == f"{own} belongs to another user (uid {NOBODY})"


def _in_folder(place: Path) -> None:
    Database.in_folder(place).close()


def _at(place: Path) -> None:
    Database.at(f"sqlite:///{place / FILE}").close()


def _local(place: Path) -> None:
    Store.open(place).close()


@pytest.mark.parametrize("open_", [_in_folder, _at, _local])
def test_no_store_is_opened_or_made_where_others_can_write(
    tmp_path: Path, open_: Callable[[Path], None]
) -> None:
    upper = folder(tmp_path / "upper", 0o700)
    place = folder(upper / "data", 0o700)
    open_(place)
    for path in place.iterdir():
        path.unlink()
    upper.chmod(0o777)
    with pytest.raises((StoreError, CliError), match="is not safe: others can write to") as refused:
        open_(place)
    assert refused.value.hint == f"run: chmod go-w {upper}, or choose a folder of your own"
    assert list(place.iterdir()) == []


def test_a_store_whose_path_sqlite_would_read_otherwise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="must not have `uri`"):
        Database.at(f"sqlite:///file:{tmp_path}/x.sqlite?uri=true")
