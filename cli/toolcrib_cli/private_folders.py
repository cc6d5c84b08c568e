"""The one check of where stores lie: nobody but this user and root can write there, or swap what is on the way there."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import NamedTuple

_MAX_LINKS = 40


class Shared(NamedTuple):
    """A place on the way to a store that somebody else can write, and what to do about it."""

    problem: str
    hint: str


def shared_place(path: Path) -> Shared | None:
    """Return the first place on the way to a store's file or folder that others can write; None if there is none.

    Every folder and link from the root on must belong to this user or to root. A folder that others can write is accepted
    on the way if its sticky bit keeps them from renaming what is in it (`/tmp`), but not as the folder of a file: they
    could create the file, or its journal, first. A path that does not exist is judged as far as it does.
    """
    places = _places(path)
    here, links, is_open = Path("/"), 0, False
    while places:
        name = places.pop()
        if name == "..":
            here = here.parent
            continue
        try:
            found = (here / name).lstat()
        except FileNotFoundError:
            return _open(here) if is_open and not places else None
        except OSError as error:
            return Shared(f"cannot look at {here / name}: {error.strerror}", "choose another folder")
        if found.st_uid not in (0, os.geteuid()):
            return Shared(
                f"{here / name} belongs to another user (uid {found.st_uid})", "choose a folder of your own"
            )
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MAX_LINKS:
                return Shared(f"{path} leads through more than {_MAX_LINKS} links", "choose another folder")
            target = Path(os.readlink(here / name))
            places += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            here = Path("/") if target.is_absolute() else here
            continue
        if is_open and not places and not stat.S_ISDIR(found.st_mode):
            return _open(here)
        here /= name
        others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        is_open = bool(others and found.st_mode & stat.S_ISVTX and stat.S_ISDIR(found.st_mode))
        if others and (not places or not (is_open or _is_own_group(found))):
            return _open(here)
    return None


def _places(path: Path) -> list[str]:
    """The parts of a path, the first one last; `..` is kept, since after a link it is not the folder before."""
    return list(reversed((Path.cwd() / path).parts[1:]))


def _open(place: Path) -> Shared:
    mode = stat.S_IMODE(place.stat().st_mode)
    return Shared(
        f"others can write to {place} (mode {mode:o})",
        f"run: chmod go-w {place}, or choose a folder of your own",
    )


def _is_own_group(found: os.stat_result) -> bool:
    """Return True if only the group can write, and it is the user's own: with `umask 002` new folders are like that."""
    if found.st_mode & stat.S_IWOTH:
        return False
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
