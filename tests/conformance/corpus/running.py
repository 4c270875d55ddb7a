"""One run of the public corpus through the adapter, and what to make of each of its rows."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

SUITE: Final = "acs-core"
SEED: Final = b"a slice of our own, cut with a seed that everybody may know"
PER_FAMILY: Final = 3
ADAPTER: Final = Path(__file__).parents[1] / "heldout_adapter.py"
EXPLAINED: Final = {
    "acs-trace is not claimed": "nothing is exported to OpenTelemetry or OCSF, and nothing reads such exports",
    "acs-crypto is not claimed": "HMAC-SHA256 is the only algorithm, so a head under ML-DSA-65 never verifies",
    "the session has no records": (
        "the runner respells ids where they are values and leaves them where they name members, so that a respelled"
        " question says of its session that it recorded nothing"
    ),
}
"""Why a case is answered otherwise than the corpus has it: how the adapter's own word begins, and what it means."""


@dataclass(frozen=True, slots=True)
class Row:
    """One case of a run."""

    family: str
    name: str
    sealed: bool
    expected: str
    expected_code: str | None
    verdict: str
    code: str | None
    why: str
    right: bool

    @property
    def explanation(self) -> str | None:
        """Why it is wrong; None where it is right or nobody knows."""
        found = (text for beginning, text in EXPLAINED.items() if self.why.startswith(beginning))
        return None if self.right else next(found, None)

    @property
    def outcome(self) -> str:
        """The four outcomes of CONF-04 and, for what has no control to hold, `not_answered`.

        A refusal with the code that the standard names is the control's; any other refusal came from a default.
        """
        if self.verdict == "unmeasurable":
            return "unmeasurable" if self.expected == "unmeasurable" else "not_answered"
        if self.expected == "deny":
            by_default = not self.right or self.why.startswith(tuple(EXPLAINED))
            refused = "blocked_by_default" if by_default else "held"
            return refused if self.verdict == "deny" else "evaded"
        return "failed_by_default" if self.verdict == "deny" else "let_through"


@cache
def corpus_rows() -> tuple[Row, ...]:
    """One run for everybody in this process: the public corpus and our own slice."""
    with tempfile.TemporaryDirectory(prefix="turnkeeper-corpus-run-") as folder:
        return tuple(run_corpus(Path(folder)))


def run_corpus(folder: Path, *, sealed: bool = True) -> list[Row]:
    """Runs the suite with the corpus's own runner, a slice of our own seed included. Raises `CalledProcessError`."""
    tool = [sys.executable, "-m", "agent_evidence_vectors.heldout"]
    record, transcript = folder / "run.json", folder / "run.transcript"
    extra: list[str] = []
    if sealed:
        seed = folder / "seed"
        seed.write_bytes(SEED)
        cut = [
            "seal",
            "--suite",
            SUITE,
            "--seed-file",
            str(seed),
            "--per-family",
            str(PER_FAMILY),
            "--out",
            str(folder),
        ]
        subprocess.run([*tool, *cut], check=True, capture_output=True, timeout=60)
        extra = ["--sealed", str(folder / "SEALED.json")]
    run = ["run", "--suite", SUITE, *extra, "--record", str(record), "--transcript", str(transcript), "--"]
    done = subprocess.run(
        [*tool, *run, sys.executable, str(ADAPTER)], check=False, capture_output=True, text=True, timeout=300
    )
    if not record.exists():
        raise RuntimeError(done.stderr)
    return list(_rows(record, transcript))


def _rows(record: Path, transcript: Path) -> Iterator[Row]:
    answers = [line[2:] for line in transcript.read_text().splitlines() if line.startswith("< ")]
    for row, answer in zip(json.loads(record.read_text())["rows"], answers, strict=True):
        said = json.loads(answer)
        yield Row(
            family=row["family"],
            name=row["id"],
            sealed=row["partition"] == "sealed",
            expected=row["expectedVerdict"],
            expected_code=row["expectedCode"],
            verdict=said["verdict"],
            code=said["code"],
            why=said["why"],
            right=row["pass"],
        )
