"""The commands of this folder that go together: `python bench/search/run.py compare|gate|everyday|subset|recall|sizes|paraphrases …`.

compare: every method on every set of a folder (`make bench-search`). gate: the committed subset against the committed
figures (`make search-gate`). everyday: everyday requests over small views, and which `min_score` to advise
for them. subset: make the committed subset again. recall: what callers who see a share of a catalog are answered,
against the visible tools alone (`make bench-search-recall`). sizes: quality and speed at
100 to 10,000 tools in one table (`make bench-search-sizes`).
`--help` after one shows its options.
"""

import importlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
COMMANDS = ("compare", "gate", "everyday", "subset", "recall", "sizes", "paraphrases")


def main() -> int:
    """Run the named command with what follows it."""
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print(__doc__, file=sys.stderr)
        return 2
    # before numpy is loaded: times are those of one thread
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.path += [str(HERE.parent), str(HERE.parents[1] / "tests" / "support")]
    status: int = importlib.import_module(sys.argv[1]).main(sys.argv[2:])
    return status


if __name__ == "__main__":
    sys.exit(main())
