"""A pattern that is accepted at apply can be evaluated by the registry, whose validator reads another dialect."""

from hypothesis import assume, given
from hypothesis import strategies as st

from suites import examples
from toolcrib.schemas.patterns import is_linear
from toolcrib_registry.calls.validators import compiled

ATOMS = st.sampled_from([
    "a", "é", "日", ".", r"\pL", r"\p{Lu}", r"\PN", r"\p{Greek}", r"\w", r"\d", r"\s", r"\S", r"\W", r"\D", "[a-z]",
    "[^a]", "[α-ω]", r"[\p{L}\p{N}_]", r"[^\s]", "[日-本x]", r"[^\pL]", r"\.", "-", "[A-Za-z0-9_-]",
])  # fmt: skip
COUNTS = st.one_of(st.integers(0, 60), st.integers(0, 3_000))


@st.composite
def _repeated(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    low = draw(COUNTS)
    end = draw(st.sampled_from(["", ",", f",{low + draw(COUNTS)}"]))
    group = draw(st.sampled_from(["(", "(?:", "(?i:"]))
    return f"{group}{draw(inner)}){{{low}{end}}}"


PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        _repeated(inner),
        st.lists(inner, min_size=2, max_size=6).map("".join),
        st.lists(inner, min_size=2, max_size=6).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from("?*+")).map(lambda it: f"(?:{it[0]}){it[1]}"),
    ),
    max_leaves=12,
)


@given(PATTERNS)
@examples(150)
def test_a_pattern_that_is_accepted_can_be_evaluated(pattern: str) -> None:
    assume(is_linear(pattern))
    compiled({"properties": {"s": {"pattern": pattern}}}).is_valid({"s": "a"})
