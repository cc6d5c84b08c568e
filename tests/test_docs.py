"""The documentation says what is so: generated pages are current, links lead somewhere, commands and manifests are real."""

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from pydantic import BaseModel

from local_mode import HEIST, LocalMode
from page_commands import blocks as page_blocks
from page_commands.blocks import Block
from page_commands.shell import Reader
from toolcrib import authorizer
from toolcrib.resources import conditions, parse
from toolcrib.resources.meta import API_VERSION
from toolcrib.schemas import safety as schema_safety
from toolcrib.settings import flag
from toolcrib.telemetry.metric import Metric
from toolcrib_cli.memory.settings import SOURCE as MEMORY
from toolcrib_operator import metrics as operator_metrics
from toolcrib_operator import options as operator_options
from toolcrib_registry import main as registry_main
from toolcrib_registry import settings as registry_settings
from toolcrib_registry.calls.errors import CallError
from toolcrib_registry.http.problems import CODES
from toolcrib_registry.metrics.recorder import Metrics
from toolcrib_registry.settings import RegistrySettings
from toolcrib_runner import main as runner_main
from toolcrib_runner.metrics import RunnerMetrics
from toolcrib_runner.settings import SOURCE as RUNNER

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```([a-z]*)(?: [a-z]+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = _generator()


def tracked(pattern: str) -> list[Path]:
    """Files of git's, or that will be, without the generated ones of other people."""
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]


MARKDOWN = tracked("*.md")


def page(name: str) -> str:
    return (DOCS / "reference" / name).read_text(encoding="utf-8")


def blocks(file: Path, *languages: str) -> Iterator[str]:
    """The fenced blocks of a file in one of these languages ("" for none)."""
    for language, body in FENCE.findall(file.read_text(encoding="utf-8")):
        if language in languages:
            yield body


def relative(file: Path) -> str:
    return str(file.relative_to(ROOT))


# --------------------------------------------------------------------------------------------------- generated pages


@pytest.mark.parametrize("name", sorted(generate.pages()))
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    assert page(name) == generate.pages()[name], "run `make generate`"


def test_the_steps_are_told_in_the_order_of_the_chain() -> None:
    text = (DOCS / "concepts" / "authorization.md").read_text(encoding="utf-8")

    told = re.findall(r"^(\d)\. \*\*(.+?)\.?\*\*", text, re.MULTILINE)

    assert told == [(str(step.value), step.title) for step in authorizer.Order]


def test_no_other_page_stands_among_the_generated_ones() -> None:
    assert {f.name for f in (DOCS / "reference").iterdir()} == set(generate.pages())


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _fields(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field.description


def test_every_setting_of_the_registry_is_documented() -> None:
    text = page("settings.md")

    assert [name for name, _ in _fields(RegistrySettings) if f"| `{name}` |" not in text] == []
    assert [name for name, about in _fields(RegistrySettings) if not about] == []


def test_every_option_of_the_operator_the_runner_and_memory_is_documented() -> None:
    text = page("settings.md")

    for source in (operator_options.SOURCE, RUNNER, MEMORY):
        fields = source.model.model_fields
        assert [f for f in fields if f"| `{flag(f)}` | `{source.variable(f)}` |" not in text] == []
        assert [f for f, field in fields.items() if not field.description] == []


def test_every_metric_is_documented() -> None:
    registry, runner = CollectorRegistry(), CollectorRegistry()
    Metrics(registry)
    RunnerMetrics(runner)
    served = (generate_latest(registry) + generate_latest(runner)).decode()
    names = {line.split()[2] for line in served.splitlines() if line.startswith("# TYPE")}
    names = {n for n in names if not n.endswith("_created")}
    names |= {row.name for row in vars(operator_metrics).values() if isinstance(row, Metric)}
    known = set(re.findall(r"`(toolcrib_\w+)`", page("metrics.md")))

    unknown = {n for n in names if not known & {n, f"{n}_total", n.removesuffix("_total")}}
    assert unknown == set()
    assert len(names) > 30


def test_every_reason_and_every_problem_code_is_documented() -> None:
    codes = {*CODES, *(kind.code for kind in CallError.__subclasses__())}

    assert [r for r in conditions.ConditionReason if f"| `{r.value}` |" not in page("conditions.md")] == []
    assert [
        r for r in authorizer.Reason if f"| `{r.value}` | {r.meaning} |" not in page("decisions.md")
    ] == []
    assert [c for c in codes if f"| `{c}` |" not in page("errors.md")] == []


def test_every_command_is_documented() -> None:
    assert [c for c in generate.command_line.commands() if f"\n## toolcrib {c}\n" not in page("cli.md")] == []
    assert "up" in generate.command_line.commands()
    assert "agent run" in generate.command_line.commands()


# --------------------------------------------------------------------------------------------------- links


def _anchors(file: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", file.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


@pytest.mark.parametrize("file", MARKDOWN, ids=relative)
def test_every_relative_link_leads_somewhere(file: Path) -> None:
    broken = []
    for link in LINK.findall(FENCE.sub("", file.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        aim = (file.parent / path).resolve() if path else file
        if not aim.exists() or (anchor and aim.suffix == ".md" and anchor not in _anchors(aim)):
            broken.append(link)

    assert broken == []


ASKED = {
    "revoke": ("docs/guides/revocation.md", "revo"),
    "who can call": ("docs/guides/access.md", "who can call"),
    "connect a client": ("docs/guides/connect-a-client.md", "connect a client"),
}
"""What people look for first, with the page and words of the heading there that answer it."""


def _ways(aim: Path, clicks: int) -> list[list[str]]:
    """The ways from the README to a page, as the texts of the links."""
    link = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)[^)\s]*\)")
    found: list[list[str]] = []
    edge: dict[Path, list[str]] = {ROOT / "README.md": []}
    for _ in range(clicks):
        step: dict[Path, list[str]] = {}
        for file, way in edge.items():
            for text, path in link.findall(FENCE.sub("", file.read_text(encoding="utf-8"))):
                to = (file.parent / path).resolve()
                if to == aim:
                    found.append([*way, text])
                elif to.suffix == ".md" and to.is_file():
                    step.setdefault(to, [*way, text])
        edge = step
    return found


@pytest.mark.parametrize("asked", ASKED)
def test_what_people_ask_first_is_found_in_three_clicks(asked: str) -> None:
    """Two clicks to the page and one to its heading, from the README itself and by the index of the documentation."""
    page, heading = ASKED[asked]
    ways = _ways(ROOT / page, 2)
    heads = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)

    assert [w for w in ways if len(w) == 1 and asked in w[0].lower()] != []
    assert [w for w in ways if len(w) == 2 and asked in w[1].lower()] != []
    assert [h for h in heads if heading in h.lower()] != []


# --------------------------------------------------------------------------------------------------- commands


def _options() -> dict[str, set[str]]:
    """Command → the options it takes."""
    found = {
        name: {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
        for name, command in generate.command_line.commands().items()
    }
    for name, parser in {
        "serve": registry_main.parser(),
        "operator": operator_options.parser(),
        "agent run": runner_main.parser(),
    }.items():
        found[name] = {o for a in parser._actions for o in a.option_strings}
    return found


OPTIONS = _options()
PROGRAMS = {"toolcrib-registry": "serve", "toolcrib-operator": "operator", "toolcrib-runner": "agent run"}


def _calls(block: str) -> Iterator[list[str]]:
    """Every call of ours in a block of shell: at the start of a line, after `;`, or within `$(…)`."""
    text = re.sub(r"\\\n\s*", " ", block)
    for line in text.splitlines():
        # the inner call is read by itself and its place taken by a word
        for inner in re.findall(r"\$\((toolcrib[^)]*)\)", line):
            yield shlex.split(inner)
        outer = re.sub(r"\$\([^)]*\)", "X", line)
        for part in outer.split(";") if outer.count('"') % 2 == 0 and outer.count("'") % 2 == 0 else []:
            if re.match(r"\s*(kubectl )?toolcrib(-\w+)? ", part):
                yield shlex.split(part, comments=True)


def _wrong(words: list[str]) -> str | None:
    if words[0] == "kubectl":
        words = words[1:]
    program, *rest = words
    if program in PROGRAMS:
        name = PROGRAMS[program]
    else:
        if not rest or rest[0] in ("…", "--help", "--version", "--install-completion"):
            return None
        groups = {name.split()[0] for name in OPTIONS if " " in name}
        name = " ".join(rest[:2]) if rest[0] in groups else rest[0]
        rest = rest[len(name.split()) :]
    if name not in OPTIONS:
        return f"no command: {name}"
    given = {w.partition("=")[0] for w in rest if re.match(r"--?[a-z]", w)}
    unknown = given - OPTIONS[name] - {"--help", "-h"}
    return f"{name} has no {', '.join(sorted(unknown))}" if unknown else None


@pytest.mark.parametrize("file", MARKDOWN, ids=relative)
def test_every_command_shown_exists_with_its_options(file: Path) -> None:
    calls = [call for block in blocks(file, "", "sh", "shell", "bash") for call in _calls(block)]

    assert [f"{' '.join(c)}: {wrong}" for c in calls if (wrong := _wrong(c))] == []


def test_the_reading_of_commands_notices_a_wrong_one() -> None:
    """The test of the test: what it must find, and what it must let pass."""
    bad = 'toolcrib upp\ncurl -H "$(toolcrib token x --scope y)" \\\n  http://x\nkubectl toolcrib tools --nobody'
    good = "toolcrib agent run --name x -o json  # why\ntoolcrib-registry --config x\ntoolcrib …\n"

    assert [_wrong(c) for c in _calls(bad)] == [
        "no command: upp",
        "token has no --scope",
        "tools has no --nobody",
    ]
    assert [_wrong(c) for c in _calls(good)] == [None, None, None]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with Reader(tmp_path_factory.mktemp("pages")) as started:
        yield started


def marked(file: Path) -> list[Block]:
    return page_blocks.marked(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "file",
    [
        # one page shows in `make test` that pages are run; each of the others takes a second or more
        pytest.param(
            f, marks=[] if relative(f) == "docs/guides/access.md" else pytest.mark.slow, id=relative(f)
        )
        for f in MARKDOWN
        if marked(f)
    ],
)
def test_commands_marked_run_do_what_the_page_says(file: Path, reader: Reader) -> None:
    assert "\n".join(reader.read(file.read_text(encoding="utf-8"))) == ""


def test_the_pages_that_a_newcomer_follows_have_commands_that_are_run() -> None:
    assert {relative(f) for f in MARKDOWN if marked(f)} >= {"README.md", "examples/heist/README.md"}


def test_a_page_that_is_wrong_about_a_command_is_noticed(reader: Reader) -> None:
    """The test of the test: an exit code, an output, and a refusal that did not come."""
    page = (
        "```sh start\ntoolcrib up --manifests examples/heist\n```\n```sh run\nNAME=hacker\n"
        "toolcrib tools --as nobody\ntoolcrib tools --as hacker  # refused: no\n```\n"
        "```sh run\ntoolcrib call calculator \\\n  --as safecracker expression='6*7'\necho $NAME\n```\n"
        '```text output\n{\n…\n  "result": 41\n}\nhacker\n```\n'
    )

    said = [line for line in reader.read(page) if line.startswith("line ")]

    assert [line.partition(":")[0] for line in said] == ["line 6", "line 7", "line 9"]
    assert (
        reader.read(page.replace("nobody", "planner").replace(" # refused: no", "").replace("41", "42")) == []
    )


def test_marks_are_read_and_a_misspelt_one_is_an_error() -> None:
    assert page_blocks.agrees("at 10:00:00, id …\n…\nend", "at  11:12:13,\tid x 7\na\nb\nend\n")
    assert not page_blocks.agrees("one\nend", "one\ntwo\nend\n")
    for wrong in ("```sh runs\nx\n```\n", "```text output\nx\n```\n", "```yaml run\nx: 1\n```\n"):
        with pytest.raises(ValueError, match="line 1: "):
            page_blocks.marked(wrong)


@pytest.mark.parametrize("file", MARKDOWN, ids=relative)
def test_every_make_target_named_exists(file: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = file.read_text(encoding="utf-8")
    named = set(re.findall(r"`make ([a-z-]+)[^`]*`", text))
    named |= {t for b in blocks(file, "", "sh") for t in re.findall(r"^make ([a-z-]+)", b, re.MULTILINE)}

    assert named - targets == set()


# --------------------------------------------------------------------------------------------------- manifests, code


class WithoutTimestamps(yaml.SafeLoader):
    """Times stay texts, as for Kubernetes."""


WithoutTimestamps.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@pytest.mark.parametrize("file", MARKDOWN, ids=relative)
def test_every_manifest_of_ours_that_is_shown_is_valid(file: Path) -> None:
    for block in blocks(file, "yaml"):
        for document in yaml.load_all(block, Loader=WithoutTimestamps):
            if isinstance(document, dict) and document.get("apiVersion") == API_VERSION:
                made = parse(document, strict=True)
                schema = getattr(made.spec, "input_schema", None)
                if schema is not None:
                    schema_safety.check(schema)


@pytest.mark.parametrize("file", MARKDOWN, ids=relative)
def test_python_that_is_shown_can_be_parsed(file: Path) -> None:
    for block in blocks(file, "python"):
        ast.parse(block)


def test_the_example_configuration_of_a_replica_is_one() -> None:
    file = ROOT / "examples" / "cluster" / "registry.yaml"

    settings = registry_settings.from_env({"TOOLCRIB_REPLICA": "registry-1"}, str(file))
    settings.refuse_dev_issuers()

    assert settings.replica == "registry-1"
    assert settings.store.kind == "weaviate"
    assert settings.admin_issuer_settings is not None


def test_the_configuration_in_the_registrys_readme_is_one() -> None:
    (block,) = blocks(ROOT / "registry_api" / "README.md", "yaml")

    RegistrySettings.model_validate(yaml.safe_load(block)).refuse_dev_issuers()


def test_the_example_agent_discovers_calls_and_is_refused(tmp_path: Path) -> None:
    example = ROOT / "examples" / "agents" / "dynamic_agent.py"
    token = tmp_path / "token"
    with LocalMode(tmp_path, HEIST) as local:
        token.write_text(local.token("safecracker"))
        argv = [sys.executable, str(example), local.url, str(token)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert "- calculator(" in done.stdout
    assert "68.88" in done.stdout
    assert "refused before any request: invalid_arguments" in done.stdout
    assert "not mine: " in done.stdout
    assert "'usage_by_tool': {'calculator': 1}" in done.stdout


@pytest.mark.parametrize(
    ("url", "held", "said"),
    [
        ("http://127.0.0.1:1", "a.b.c", "registry_unavailable: the registry cannot be reached: "),
        ("http://127.0.0.1:1", "", "token_unavailable: no token in "),
        ("127.0.0.1:8765", "a.b.c", "error: the discovery URL must be http(s)://"),
        ("http://[::1", "a.b.c", "error: the discovery URL cannot be read: "),
        (None, "a.b.c", "usage: python examples/agents/dynamic_agent.py REGISTRY-URL TOKEN-FILE"),
    ],
    ids=["away", "no token", "no scheme", "no address", "no arguments"],
)
def test_the_example_agent_ends_with_a_line_where_it_cannot_work(
    url: str | None, held: str, said: str, tmp_path: Path
) -> None:
    example, token = ROOT / "examples" / "agents" / "dynamic_agent.py", tmp_path / "token"
    token.write_text(held)
    argv = [sys.executable, str(example), *((url, str(token)) if url else ())]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(said)


# --------------------------------------------------------------------------------------------------- pages with claims


def test_every_test_named_as_proof_exists() -> None:
    written = "\n".join(f.read_text(encoding="utf-8") for f in tracked("tests/*.py"))
    there = set(re.findall(r"def (test_\w+)", written))
    named = {
        (relative(file), name)
        for file in MARKDOWN
        for name in re.findall(r"`(test_\w+)`", file.read_text(encoding="utf-8"))
    }

    assert {(where, name) for where, name in named if name not in there} == set()
    assert len(named) > 30


def test_guides_name_no_tests_the_evidence_page_does() -> None:
    named = {relative(f) for f in MARKDOWN if re.search(r"`test_\w+`", f.read_text(encoding="utf-8"))}

    assert {n for n in named if n.startswith(("docs/guides/", "docs/concepts/"))} == set()
    assert "docs/contributing/evidence.md" in named


@pytest.mark.parametrize("file", sorted((DOCS / "guides").glob("*.md")), ids=relative)
def test_a_guide_opens_with_an_example_or_a_table(file: Path) -> None:
    """What the reader gets, in a few words, then the shortest example; where nothing is to be typed, a table."""
    opening = re.split(r"^```|^\|", file.read_text(encoding="utf-8"), maxsplit=1, flags=re.MULTILINE)[0]

    assert len(opening.split()) <= 80


@pytest.mark.parametrize("name", ["guides/performance.md", "contributing/performance.md"])
def test_every_section_with_figures_has_the_command_that_makes_them(name: str) -> None:
    sections = re.split(r"^## ", (DOCS / name).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    figure = re.compile(r"^\|.*\d.*\|$|\d[\d.,]* ?(ms|µs|us|s|x|×|%|MB|MiB)\b", re.MULTILINE)
    command = re.compile(r"make bench|python (-m )?bench|^make [a-z-]+", re.MULTILINE)

    assert [s.splitlines()[0] for s in sections if figure.search(s) and not command.search(s)] == []


def test_the_guide_to_performance_has_no_figure_of_its_own() -> None:
    """It sums up the page with all figures, so what is measured again is changed in both."""
    figures = re.compile(r"\d+(?:[.,]\d+)*")
    shown = figures.findall(re.sub(r"`[^`]*`|\([^)]*\)|p\d\d", "", _of("guides/performance.md")))

    assert set(shown) - set(figures.findall(_of("contributing/performance.md"))) == set()
    assert len(shown) > 30


def _of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def test_no_page_has_a_placeholder_left() -> None:
    assert [f.name for f in DOCS.rglob("*.md") if "@@" in f.read_text(encoding="utf-8")] == []


def test_every_decision_has_a_number_of_its_own_which_is_that_of_its_title() -> None:
    files = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    numbers = [int(file.name[:4]) for file in files]
    titles = [int(file.read_text(encoding="utf-8").removeprefix("# ").split(".")[0]) for file in files]

    assert titles == numbers
    assert len(set(numbers)) == len(numbers)


def test_the_readme_names_the_folders_that_there_are() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| \[`([a-z_]+)/`\]", text, re.MULTILINE))
    there = {f.relative_to(ROOT).parts[0] for f in tracked("*") if len(f.relative_to(ROOT).parts) > 1}

    assert named == {d for d in there if not d.startswith(".")}
    for folder, package in re.findall(
        r"^\| \[`([a-z_]+)/`\]\([^)]*\) \| `(toolcrib\w*)` \|", text, re.MULTILINE
    ):
        assert (ROOT / folder / package).is_dir(), folder


def test_the_readme_begins_with_the_two_commands() -> None:
    first = next(blocks(ROOT / "README.md", ""))

    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make up", "make test"]


def test_the_readme_tells_four_readers_what_they_get_and_how_far_it_is_before_the_first_steps() -> None:
    """In a minute: one sentence, a picture, a line for each reader, the status with MCP; the rest is elsewhere."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first, _, rest = text.partition("\n## Five minutes on a laptop\n")
    readers = re.findall(r"^\| \*\*([^*]+)\*\* \| .+ \|$", first, re.MULTILINE)

    assert readers == ["platform engineer", "tool author", "agent developer", "security engineer"]
    assert len(re.findall(r"^\*\*[^*\n]+\.\*\*$", first, re.MULTILINE)) == 1
    assert "\n## Status\n" in first
    assert "\n| MCP | " in first
    assert first.count("<picture>") == 1
    assert len(first.split()) < 420
    assert {"CONTRIBUTING.md", "SECURITY.md"} <= set(LINK.findall(rest))
    assert "\n## Tests\n" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")


@pytest.mark.parametrize("file", sorted((DOCS / "decisions").glob("*.md")), ids=relative)
def test_a_decision_is_one_page_with_its_four_parts(file: Path) -> None:
    text = file.read_text(encoding="utf-8")

    parts = ["Context", "Decision", "Consequences"] + ["Alternatives"] * ("| instead of |" not in text)
    assert text.startswith(f"# {int(file.name[:4])}. ")
    assert [h for h in parts if f"\n## {h}\n" not in text] == []
    assert len(text.splitlines()) <= 80


def test_the_tables_of_pages_are_whole() -> None:
    """A row with more or fewer cells than its head is cut or empty where it is shown."""
    for file in MARKDOWN:
        for group in re.findall(
            r"(?:^\|.*\|\n)+", FENCE.sub("", file.read_text(encoding="utf-8")), re.MULTILINE
        ):
            widths = {len(re.findall(r"(?<!\\)\|", row)) for row in group.splitlines()}
            assert len(widths) == 1, f"{relative(file)}: {group.splitlines()[0]}"
