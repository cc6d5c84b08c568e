"""Draw `architecture-light.svg` and `architecture-dark.svg`: the parts of Toolcrib and who talks to whom.

`python docs/pictures/architecture.py` (part of `make generate`) writes both beside itself.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path

TITLE = "The parts of Toolcrib"
DESCRIPTION = (
    "kubectl or Git write Tools and bindings to the Kubernetes API server. The operator watches it, assesses what it finds, "
    "writes status back, and publishes snapshots to the registry's admin port. In the local mode the operator reads a folder "
    "of manifests instead. Agents ask the registry by MCP or HTTP with a token. The registry verifies the token, decides, "
    "lists, searches and describes tools, and calls the tools' backends with a signed assertion. It uses a search index, which "
    "is embedded or Weaviate, call counters in memory or Redis, and a chained decision log. Prometheus scrapes the metrics of "
    "operator, registry and agent runner, for alerts and Grafana dashboards."
)
WIDTH, HEIGHT = 800, 596


@dataclass(frozen=True)
class Palette:
    """Colours of one file, as SVG names them."""

    page: str
    box: str
    edge: str
    text: str
    faint: str
    accent: str
    accent_box: str
    local: str


PALETTES = {
    "light": Palette("#ffffff", "#f6f8fa", "#8c959f", "#1f2328", "#59636e", "#0969da", "#ddf4ff", "#8250df"),
    "dark": Palette("#0d1117", "#161b22", "#656c76", "#f0f6fc", "#9198a1", "#58a6ff", "#10233d", "#bc8cff"),
}


def box(x: int, y: int, width: int, height: int, kind: str, title: str, *lines: str) -> str:
    """A box with a title and lines of smaller text, centred."""
    first = y + height / 2 - 8.5 * len(lines) + 5
    parts = [f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>']
    parts.append(_text(x + width / 2, first, "title", title))
    parts += [_text(x + width / 2, first + 18 * n, "line", line) for n, line in enumerate(lines, 1)]
    return "\n".join(parts)


def arrow(
    points: str, label: tuple[float, float, str] | None = None, kind: str = "way", both: bool = False
) -> str:
    """A line through points ("x,y x,y …") with a head at its end, and a label at its own place."""
    head = "head-local" if kind == "local" else "head"
    start = f' marker-start="url(#{head})"' if both else ""
    drawn = f'<polyline class="{kind}" points="{points}" marker-end="url(#{head})"{start}/>'
    return drawn + ("\n" + _text(label[0], label[1], "label", label[2]) if label else "")


def _text(x: float, y: float, kind: str, text: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def draw(colours: Palette) -> str:
    """The whole file."""
    c = colours
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{fill}"/></marker>'
        for name, fill in (("head", c.faint), ("head-local", c.local))
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" aria-labelledby="title description">',
        f'<title id="title">{escape(TITLE)}</title>',
        f'<desc id="description">{escape(DESCRIPTION)}</desc>',
        "<style>"
        "text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;text-anchor:middle}"
        f".title{{font-size:14px;font-weight:600;fill:{c.text}}}.line{{font-size:12.5px;fill:{c.faint}}}"
        f".label{{font-size:12.5px;fill:{c.text}}}.frame-label{{font-size:12.5px;fill:{c.local}}}"
        f".box{{fill:{c.box};stroke:{c.edge}}}.main{{fill:{c.accent_box};stroke:{c.accent};stroke-width:1.5}}"
        f".folder{{fill:{c.box};stroke:{c.local};stroke-dasharray:5 4}}"
        f".frame{{fill:none;stroke:{c.local};stroke-dasharray:5 4}}"
        f".way{{fill:none;stroke:{c.faint};stroke-width:1.5}}"
        f".local{{fill:none;stroke:{c.local};stroke-width:1.5;stroke-dasharray:5 4}}"
        "</style>",
        f"<defs>{heads}</defs>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{c.page}"/>',
        # what one process runs in the local mode
        '<rect class="frame" x="192" y="142" width="416" height="360" rx="12"/>',
        _text(490, 163, "frame-label", "local mode: one process"),
        # what is declared
        box(20, 20, 130, 72, "box", "kubectl, Git", "manifests"),
        box(212, 20, 236, 72, "box", "Kubernetes API server", "schema, CEL rules,", "admission policies"),
        box(560, 20, 220, 72, "folder", "A folder of manifests", "local mode: toolcrib up"),
        arrow("150,56 209,56", (180, 47, "apply")),
        arrow("300,92 300,177", (274, 120, "watch")),
        arrow("360,180 360,95", (386, 120, "status")),
        arrow("690,92 690,212 513,212", kind="local"),
        _text(733, 158, "frame-label", "watch"),
        # the operator and the registry
        box(232, 180, 278, 64, "main", "Operator", "assess, publish, write status"),
        arrow("370,244 370,297", (468, 275, "admin port: snapshots")),
        box(
            212, 300, 376, 92, "main", "Registry", "verify the token, decide,", "list, search, describe, call"
        ),
        # callers and tools
        box(20, 300, 112, 92, "box", "Agents", "MCP clients,", "agent runner"),
        arrow("132,336 209,336", (170, 327, "MCP")),
        arrow("132,364 209,364", (170, 382, "HTTP")),
        box(668, 300, 112, 92, "box", "Tools", "your services,", "MCP servers"),
        arrow("588,346 665,346", (634, 337, "signed")),
        _text(634, 364, "label", "calls"),
        # what the registry uses
        box(212, 432, 118, 60, "box", "Search index", "or Weaviate"),
        box(341, 432, 118, 60, "box", "Call counters", "or Redis"),
        box(470, 432, 118, 60, "box", "Decision log", "hash chain"),
        *(arrow(f"{x},392 {x},429") for x in (271, 400, 529)),
        # who watches over it
        box(192, 520, 256, 56, "box", "Prometheus", "scrapes /metrics of every part"),
        arrow("448,548 487,548"),
        box(490, 520, 118, 56, "box", "Grafana", "and alerts"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def write(folder: Path = Path(__file__).parent) -> None:
    """Write a file for each palette."""
    for name, colours in PALETTES.items():
        (folder / f"architecture-{name}.svg").write_text(draw(colours), encoding="utf-8")


if __name__ == "__main__":
    write()
