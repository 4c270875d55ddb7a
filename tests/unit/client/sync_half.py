"""Makes the blocking helpers from the awaiting ones: `python tests/unit/client/sync_half.py` writes the file anew."""

import re
from pathlib import Path

CLIENT = Path(__file__).parents[3] / "src" / "turnkeeper" / "client"
SOURCE = CLIENT / "helpers.py"
TARGET = CLIENT / "helpers_blocking.py"

DOCSTRING = '''"""Typed steps for agents that do not await (ACS 5): `turnkeeper.client.helpers` without its awaits.

Made from that module by `tests/unit/client/sync_half.py`; change it there.
"""
'''


def blocking(text: str) -> str:
    """The same module, blocking."""
    body = re.sub(r'\A""".*?"""\n', DOCSTRING, text, count=1, flags=re.DOTALL)
    body = body.replace("async def ", "def ").replace("await ", "")
    return re.sub(r"\b(Steps|SessionSteps|TurnSteps)\b(?=[(:])", r"Sync\1", body).replace("(Steps)", "(SyncSteps)")


if __name__ == "__main__":
    TARGET.write_text(blocking(SOURCE.read_text()))
