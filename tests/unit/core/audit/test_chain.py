"""The chain of the decision log: any single change of a random log is found."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suites import examples
from toolcrib.audit import chain as audit_chain
from toolcrib.audit.anchors import Anchor
from toolcrib.audit.chain import GENESIS, AuditKey, AuditKeyError, Head
from toolcrib.audit.verification import Report, Verification, order

pytestmark = pytest.mark.guarantee

KEY = AuditKey.of(b"k" * 32)
OTHER = AuditKey.of(b"o" * 32)
START = 1_800_000_000.0


@dataclass
class Log:
    """A log of some replicas: files of lines, and what was anchored elsewhere."""

    files: dict[str, list[bytes]] = field(default_factory=dict)
    anchors: list[Anchor] = field(default_factory=list)


def record(action: str, replica: str, **fields: object) -> bytes:
    given = {"ts": "2027-01-15T08:00:00.000Z", "replica": replica, "action": action, **fields}
    return json.dumps(given, separators=(",", ":")).encode()


def written(rnd: random.Random, replicas: int = 2, key: AuditKey = KEY, *, retire: bool = True) -> Log:
    """What registries would write: runs that continue each other, files that are rotated, some retired."""
    log = Log()
    for r in range(replicas):
        name = f"registry-{r}"
        prev, chains = GENESIS, rnd.randint(1, 3)
        files: list[list[bytes]] = [[]]
        ends: list[Head] = []
        for c in range(chains):
            head = Head(audit_chain.chain_id(name, START + 60 * c, f"{rnd.randrange(1 << 16):04x}"), 0, prev)
            actions = [audit_chain.BEGIN, *rnd.choices(["call", "list", "search"], k=rnd.randint(1, 8))]
            if rnd.random() < 0.5 and c < chains - 1:
                actions.append(audit_chain.END)
            for action in actions:
                if head.seq and len(files[-1]) > 4 and rnd.random() < 0.4:
                    ends.append(head)
                    files.append([])
                    line, head = audit_chain.sealed(key, head, record(audit_chain.ROTATED, name))
                    files[-1].append(line)
                    if retire and len(files) > 3:
                        last = {"chain": ends[0].chain, "seq": ends[0].seq, "hash": ends[0].hash}
                        line, head = audit_chain.sealed(
                            key, head, record(audit_chain.RETIRED, name, last=last)
                        )
                        files[-1].append(line)
                        files, ends = files[1:], ends[1:]
                line, head = audit_chain.sealed(
                    key, head, record(action, name, tool="team/t", n=rnd.randrange(100))
                )
                files[-1].append(line)
                if rnd.random() < 0.2:
                    log.anchors.append(Anchor(head.chain, head.seq, "2027-01-15T08:00:00.000Z", head.hash))
            prev = head.hash
            log.anchors.append(Anchor(head.chain, head.seq, "2027-01-15T08:00:00.000Z", head.hash))
        log.files |= {f"{name}/{n}.jsonl": lines for n, lines in enumerate(files)}
    return log


def verified(log: Log, *keys: AuditKey, anchors: bool = True) -> Report:
    check = Verification(keys or (KEY,), log.anchors if anchors else ())
    for name in order((n, lines[0] if lines else None) for n, lines in log.files.items()):
        for number, line in enumerate(log.files[name], 1):
            check.line(name, number, line)
    return check.finish()


seeds = st.integers(0, 2**32)


@given(seeds)
@examples(60)
def test_a_log_that_nobody_touched_has_nothing_wrong(seed: int) -> None:
    log = written(random.Random(seed))
    report = verified(log)
    assert report.findings == ()
    assert report.records == sum(map(len, log.files.values()))
    assert verified(log, anchors=False).findings == ()


def _byte(rnd: random.Random, lines: list[bytes], at: int) -> None:
    line = bytearray(lines[at])
    place = rnd.randrange(len(line))
    line[place] = (line[place] + rnd.randrange(1, 256)) % 256
    lines[at] = bytes(line)


def _value(rnd: random.Random, lines: list[bytes], at: int) -> None:
    lines[at] = lines[at].replace(b'"replica":"registry-', b'"replica":"registry-9', 1)


def _remove(rnd: random.Random, lines: list[bytes], at: int) -> None:
    del lines[at]


def _repeat(rnd: random.Random, lines: list[bytes], at: int) -> None:
    lines.insert(at, lines[at])


def _swap(rnd: random.Random, lines: list[bytes], at: int) -> None:
    other = (at + 1) % len(lines)
    lines[at], lines[other] = lines[other], lines[at]


def _cut(rnd: random.Random, lines: list[bytes], at: int) -> None:
    del lines[at:]


def _insert(rnd: random.Random, lines: list[bytes], at: int) -> None:
    """A line of somebody without the key."""
    known = audit_chain.read_line(lines[at])
    assert known is not None
    head = Head(known.chain, known.seq - 1, known.prev)
    forged, _ = audit_chain.sealed(OTHER, head, record("call", known.replica))
    lines.insert(at, forged)


def _reseal(rnd: random.Random, lines: list[bytes], at: int) -> None:
    """Rewrites the file from here on with the key, as somebody who took the key could."""
    known = audit_chain.read_line(lines[at])
    assert known is not None
    head = Head(known.chain, known.seq - 1, known.prev)
    for n in range(at, len(lines)):
        line = audit_chain.read_line(lines[n])
        assert line is not None
        if line.chain != head.chain:
            head = Head(line.chain, 0, head.hash)
        lines[n], head = audit_chain.sealed(KEY, head, record(line.action, line.replica, forged=True))


MUTATIONS = [_byte, _value, _remove, _repeat, _swap, _cut, _insert, _reseal]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda m: m.__name__.strip("_"))
@given(seed=seeds)
@examples(50)
def test_any_single_change_is_found(mutate: object, seed: int) -> None:
    assert callable(mutate)
    rnd = random.Random(seed)
    log = written(rnd)
    lines = log.files[rnd.choice(sorted(n for n, found in log.files.items() if len(found) > 1))]
    before = list(lines)
    mutate(rnd, lines, rnd.randrange(len(lines)))
    if lines == before:
        return
    assert verified(log).findings != ()


@given(seeds)
@examples(40)
def test_a_missing_file_run_or_replica_is_found(seed: int) -> None:
    rnd = random.Random(seed)
    log = written(rnd)
    gone = rnd.choice(sorted(log.files))
    del log.files[gone]
    kinds = {f.kind for f in verified(log).findings}
    assert kinds & {"missing", "missing_start", "missing_chain", "missing_replica", "cut_tail"}
    log = written(rnd)
    log.files = {n: lines for n, lines in log.files.items() if not n.startswith("registry-1/")}
    assert {f.kind for f in verified(log).findings} == {"missing_replica"}


@given(seeds)
@examples(30)
def test_without_anchors_only_the_end_of_the_last_run_can_be_cut_unseen(seed: int) -> None:
    rnd = random.Random(seed)
    log = written(rnd, replicas=1)
    name = order((n, lines[0]) for n, lines in log.files.items())[-1]
    lines = log.files[name]
    last = audit_chain.read_line(lines[-1])
    assert last is not None
    own = [
        n for n, raw in enumerate(lines) if (line := audit_chain.read_line(raw)) and line.chain == last.chain
    ]
    cut = rnd.randrange(own[0] + (own[0] == 0), len(lines)) if len(lines) > 1 else 1
    retired = any(audit_chain.RETIRED.encode() in raw for raw in lines[cut:])
    del lines[cut:]
    if not retired:
        assert verified(log, anchors=False).findings == ()
    found = [f for f in verified(log).findings if f.kind in ("cut_tail", "missing_chain")]
    assert found
    assert all("anchored" in f.message for f in found)


def runs(count: int, *, stream: bool = False) -> list[list[bytes]]:
    """Runs of one replica, each of four lines and not ended."""
    made: list[list[bytes]] = []
    prev = GENESIS
    for n in range(count):
        head = Head(audit_chain.chain_id("r", START + 60 * n, "aa"), 0, GENESIS if stream else prev)
        lines = []
        for action in (audit_chain.BEGIN, "call", "list", "call"):
            fields = {"stream": True} if stream and action == audit_chain.BEGIN else {}
            line, head = audit_chain.sealed(KEY, head, record(action, "r", **fields))
            lines.append(line)
        made.append(lines)
        prev = head.hash
    return made


def of_one_file(*given: list[bytes], anchors: tuple[bytes, ...] = ()) -> Report:
    log = Log({"a.jsonl": [line for lines in given for line in lines]})
    for raw in anchors:
        line = audit_chain.read_line(raw)
        assert line is not None
        log.anchors.append(Anchor(line.chain, line.seq, line.ts, line.hash))
    return verified(log)


@pytest.mark.parametrize("cut", [1, 3])
def test_an_end_that_was_cut_off_an_earlier_run_is_found_without_anchors(cut: int) -> None:
    one, two = runs(2)
    assert of_one_file(one, two).findings == ()
    (found,) = of_one_file(one[:-cut], two).findings
    assert (found.where, found.kind) == (f"a.jsonl:{5 - cut}", "missing")
    assert "an end was cut off" in found.message


def test_runs_of_a_stream_stand_once_and_in_their_order() -> None:
    one, two, three = runs(3, stream=True)
    whole = of_one_file(one, two, three)
    assert (whole.findings, whole.interrupted) == ((), 2)
    for order_of_runs, wheres in (
        ((two, three, one), ["a.jsonl:9"]),
        ((one, two, one), ["a.jsonl:9"]),
        ((one, three, two), ["a.jsonl:9"]),
        ((one, two, one, two), ["a.jsonl:9", "a.jsonl:13"]),
    ):
        last = tuple(lines[-1] for lines in order_of_runs[-2:])
        findings = of_one_file(*order_of_runs, anchors=last).findings
        assert [(f.where, f.kind) for f in findings] == [(where, "reordered") for where in wheres]


def test_a_report_names_the_replicas_whose_last_run_no_anchor_covers() -> None:
    one, two = runs(2)
    assert of_one_file(one, two).unanchored == ("r",)
    assert of_one_file(one, two, anchors=(one[-1],)).unanchored == ("r",)
    assert of_one_file(one, two, anchors=(two[1],)).unanchored == ()


def test_of_a_stream_each_run_that_did_not_end_needs_an_anchor_of_its_own() -> None:
    one, two = runs(2, stream=True)
    cut = of_one_file(one[:1], two, anchors=(two[-1],))
    assert (cut.findings, cut.unanchored) == ((), ("r",)), "nothing else could tell that it was cut"
    assert of_one_file(one, two, anchors=(one[1], two[-1])).unanchored == ()
    begun = audit_chain.read_line(one[-1])
    assert begun is not None
    ended, _ = audit_chain.sealed(KEY, begun.head, record(audit_chain.END, "r"))
    assert of_one_file([*one, ended], two, anchors=(two[-1],)).unanchored == ()
    file_of_one, next_of_one = runs(2)
    assert of_one_file(file_of_one, next_of_one, anchors=(next_of_one[-1],)).unanchored == ()


def test_findings_name_file_line_and_number() -> None:
    log = written(random.Random(7), replicas=1, retire=False)
    name = sorted(log.files)[0]
    log.files[name][2] = log.files[name][2].replace(b'"team/t"', b'"team/x"')
    (found,) = verified(log).findings
    assert (found.where, found.kind) == (f"{name}:3", "altered")
    assert "seq 3" in found.message


def test_a_wrong_key_and_a_missing_key_are_named_once() -> None:
    log = written(random.Random(3))
    (wrong,) = verified(log, OTHER).findings
    assert wrong.kind == "unknown_key"
    assert KEY.kid in wrong.message
    assert OTHER.kid in wrong.message
    assert verified(log, KEY, OTHER).findings == ()


def test_a_line_without_a_key_is_no_line_of_a_keyed_log() -> None:
    log = written(random.Random(3), replicas=1)
    name = sorted(log.files)[-1]
    last = audit_chain.read_line(log.files[name][-1])
    assert last is not None
    log.files[name].append(audit_chain.sealed(audit_chain.NO_KEY, last.head, record("call", last.replica))[0])
    assert [f.kind for f in verified(log).findings] == ["unknown_key"]


def test_the_format_can_be_checked_with_nothing_but_a_json_reader_and_an_hmac() -> None:
    """What docs/contributing/replay.md says, word by word."""
    import hashlib
    import hmac

    line, _ = audit_chain.sealed(KEY, Head("r@x", 0, GENESIS), record("call", "r", tool="a"))
    body, _, end = line.rpartition(b',"hash":"')
    chain_key = hmac.new(b"k" * 32, b"toolcrib audit chain", hashlib.sha256).digest()
    assert hmac.new(chain_key, body, hashlib.sha256).hexdigest() == end[:64].decode()
    assert json.loads(line)["prev"] == GENESIS
    assert (
        json.loads(line)["kid"]
        == hmac.new(b"k" * 32, b"toolcrib audit key id", hashlib.sha256).hexdigest()[:16]
    )


def test_a_short_secret_is_no_key_and_is_not_shown() -> None:
    with pytest.raises(AuditKeyError) as caught:
        AuditKey.of(b"hunter2\n")
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(KEY)


def test_equal_arguments_have_equal_hashes_whatever_their_order_and_other_keys_have_others() -> None:
    one, two = audit_chain.canonical({"a": 1, "b": "é"}), audit_chain.canonical({"b": "é", "a": 1})
    assert KEY.arguments(one) == KEY.arguments(two)
    assert KEY.arguments(one) != OTHER.arguments(one)
    assert audit_chain.NO_KEY.arguments(one) is None


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    st.sampled_from(["\u202e", "\x85\x9b", "\x7f", "\u2066", "\U000e0041", "ü", ""]),
)
def test_a_line_is_printable_ascii_says_the_same_and_closes(text: str, more: str) -> None:
    said = {"ts": "2027-01-15T08:00:00.000Z", "replica": "r", "action": "call", "name": f"{text}{more}\u2028"}
    raw = json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()

    line, head = audit_chain.sealed(KEY, Head("r@1", 0, GENESIS), raw)

    assert line.decode("ascii").isprintable()
    assert json.loads(line) | said == json.loads(line)
    read = audit_chain.read_line(line)
    assert read is not None
    assert audit_chain.closes(KEY, line, read)
    assert head.hash == read.hash
