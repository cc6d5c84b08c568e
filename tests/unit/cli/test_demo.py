"""The packaged example of `toolcrib up --demo`."""

import tomllib
from pathlib import Path

from local_mode import HEIST
from toolcrib_cli.local import demo

ROOT = HEIST.parents[1]


def test_the_demonstration_is_the_heist_written_once_so_that_edits_stay(tmp_path: Path) -> None:
    folder = demo.written(tmp_path / demo.FOLDER)
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert files == {file.name: file.read_bytes() for file in HEIST.glob("*.yaml")}
    (folder / "00-namespace.yaml").write_text("# edited\n")
    assert (demo.written(folder) / "00-namespace.yaml").read_text() == "# edited\n"
    assert [each.name for each in tmp_path.iterdir()] == [demo.FOLDER]


def test_the_wheel_and_the_image_have_it_from_its_one_source() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"]["force-include"] == {"examples/heist": f"toolcrib_cli/{demo.FOLDER}"}
    assert "/examples/heist" in build["sdist"]["include"]
    assert "COPY examples/heist examples/heist" in (ROOT / "Dockerfile").read_text()
    assert "!examples/heist" in (ROOT / ".dockerignore").read_text().splitlines()
