"""Makes the blocking half of the turn API's client: `python tests/unit/client/turn_api_half.py` writes it anew."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
TURN_API = ROOT / "src" / "turnkeeper" / "client" / "turn_api"
AWAITING = (
    "admin",
    "connection",
    "files",
    "handles",
    "keys",
    "pages",
    "resources",
    "secrets",
    "skills",
    "server",
    "spending",
    "streams",
    "webhooks",
)

_WORDS = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\bAbstractAsyncContextManager\b", "AbstractContextManager"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\baclosing\b", "closing"),
    (r"\baclose\b", "close"),
    (r"\basleep\b", "sleep"),
    (r"\baiter_bytes\b", "iter_bytes"),
    (r"__a(enter|exit|iter)__", r"__\1__"),
    (rf"(?<=turn_api\.)({'|'.join(AWAITING)})\b", r"\1_blocking"),
)


def blocking(name: str) -> str:
    """The module's text without its awaits."""
    text = (TURN_API / f"{name}.py").read_text()
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text)
    note = (
        f"\n\nMade from `turnkeeper.client.turn_api.{name}` by `tests/unit/client/turn_api_half.py`; change it there.\n"
    )
    head, rest = re.fullmatch(r'"""(.*?)\n?"""\n(.*)', text, re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess]
    return _formatted(f'"""{head}{note}"""\n{rest}')


def target(name: str) -> Path:
    """Where it belongs."""
    return TURN_API / f"{name}_blocking.py"


def _formatted(text: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    place = ["--stdin-filename", str(TURN_API / "made.py"), "-"]
    for verb in (["check", "--select", "I,UP028", "--fix", "--unsafe-fixes", "--quiet"], ["format", "--quiet"]):
        text = subprocess.run([*ruff, *verb, *place], input=text, text=True, capture_output=True, check=True).stdout
    return text


if __name__ == "__main__":
    for module in AWAITING:
        target(module).write_text(blocking(module))
