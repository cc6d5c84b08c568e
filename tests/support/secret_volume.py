"""The volume of a TLS Secret as a kubelet lays it down: each version a folder of its own, reached over a link."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from realparts.pki import Authority


class SecretVolume:
    """`tls.crt`, `tls.key` and `ca.crt` in `folder`, for `hosts`; `swap` puts the next version in their place."""

    def __init__(self, folder: Path, *hosts: str) -> None:
        self.folder = folder
        self._hosts = hosts
        folder.mkdir(parents=True, exist_ok=True)
        self.swap("one")
        for name in ("tls.crt", "tls.key", "ca.crt"):
            (folder / name).symlink_to(f"..data/{name}")

    @property
    def cert(self) -> Path:
        """The certificate."""
        return self.folder / "tls.crt"

    @property
    def key(self) -> Path:
        """Its key."""
        return self.folder / "tls.key"

    @property
    def ca(self) -> Path:
        """The authority of the newest version."""
        return self.folder / "ca.crt"

    @property
    def files(self) -> dict[str, str]:
        """What the registry's settings `tls` and `admin_tls` take."""
        return {"cert_file": str(self.cert), "key_file": str(self.key)}

    def version(self, name: str) -> Path:
        """The folder of a version."""
        return self.folder / f"..{name}"

    def swap(self, version: str, *, key_of: str | None = None) -> None:
        """Issue a version by a new authority, `ca <version>`, and swap it in; with the key of another, a broken one."""
        made = self.version(version)
        made.mkdir()
        Authority(f"ca {version}", made).issue("tls", "server", hosts=self._hosts)
        if key_of is not None:
            shutil.copy(self.version(key_of) / "tls.key", made / "tls.key")
        link = self.folder / "..new"
        link.symlink_to(made.name)
        os.replace(link, self.folder / "..data")
