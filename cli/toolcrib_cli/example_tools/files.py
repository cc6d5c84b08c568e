"""`file_reader`: the text of one file of the shared folder, and of nothing outside it."""

import os
import stat
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Final

from toolcrib_cli.example_tools.arguments import Arguments
from toolcrib_cli.example_tools.problems import ToolError, impossible, invalid_argument

LARGEST_FILE: Final = 256 * 1024
LONGEST_NAME: Final = 255
MOST_NAMES_LISTED: Final = 20


class SharedFolder:
    """A folder whose regular files may be read by name. Blocking: call it in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, arguments: Arguments) -> dict[str, object]:
        """Answer `{filename, size, content}`; `size` in bytes, `content` as UTF-8 text of at most 256 KiB."""
        arguments.expect({"filename"})
        filename = arguments.text("filename", longest=LONGEST_NAME)
        content = self._content(_checked(filename))
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise impossible("not_text", f"{filename!r} is not a UTF-8 text file.") from error
        return {"filename": filename, "size": len(content), "content": text}

    def _content(self, name: PurePosixPath) -> bytes:
        """Resolve links, which must stay inside; then follow none, so that a swap in between is harmless."""
        try:
            root = self.folder.resolve(strict=True)
            resolved = (root / name).resolve(strict=True)
            # A link within the folder is fine: the files of a mounted ConfigMap are links.
            inside = resolved.relative_to(root)
            with ExitStack() as stack:
                folder = _opened(stack, str(root), os.O_DIRECTORY, None)
                for part in inside.parts[:-1]:
                    folder = _opened(stack, part, os.O_DIRECTORY, folder)
                # A pipe in the folder must not make the open wait for its other end.
                descriptor = _opened(stack, inside.name, os.O_NONBLOCK, folder)
                return _regular_content(descriptor, name)
        except (OSError, ValueError, RuntimeError) as error:
            raise self._not_found(name) from error

    def _not_found(self, name: PurePosixPath) -> ToolError:
        """Outside, absent and unreadable look alike: no answer tells of the rest of the machine."""
        names = self.names()
        listed = ", ".join(names[:MOST_NAMES_LISTED]) + (", …" if len(names) > MOST_NAMES_LISTED else "")
        there = f"There are: {listed}." if names else "It is empty."
        detail = f"There is no file {str(name)!r} in the shared folder. {there}"
        return ToolError(HTTPStatus.NOT_FOUND, "file_not_found", detail)

    def names(self) -> list[str]:
        """The files at the top of the folder, sorted; hidden ones left out."""
        try:
            entries = list(os.scandir(self.folder))
        except OSError:
            return []
        return sorted(
            e.name for e in entries if not e.name.startswith(".") and e.is_file(follow_symlinks=False)
        )


def _checked(filename: str) -> PurePosixPath:
    if "\\" in filename or not filename.isprintable():
        raise invalid_argument("A filename holds no backslashes and no control characters.")
    name = PurePosixPath(filename)
    if name.is_absolute() or ".." in name.parts or not name.parts:
        raise invalid_argument(
            "The filename must be a path inside the shared folder, such as 'guard_schedule.txt'."
        )
    return name


def _opened(stack: ExitStack, name: str, flags: int, folder: int | None) -> int:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=folder)
    stack.callback(os.close, descriptor)
    return descriptor


def _regular_content(descriptor: int, name: PurePosixPath) -> bytes:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise impossible("not_a_file", f"{str(name)!r} is a folder.")
    if not stat.S_ISREG(status.st_mode):
        raise impossible("not_a_file", f"{str(name)!r} is not a regular file.")
    with os.fdopen(os.dup(descriptor), "rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise impossible("file_too_large", f"{str(name)!r} is larger than {LARGEST_FILE // 1024} KiB.")
    return content
