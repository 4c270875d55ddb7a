"""`docs/reference/metrics.md`: every figure there is, and no other."""

import re
from pathlib import Path

import yaml

from turnkeeper.trace.figures import COUNTED, GAUGES
from turnkeeper.turns.model import StopReason

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()


def test_the_page_has_a_row_for_every_figure() -> None:
    rows = re.findall(r"^\| `(turnkeeper_\w+)` \| (\w+) \| (\w+) \| (.*?) ?\| (.+?) \|$", PAGE, re.MULTILINE)
    shown = [
        (name, kind, where, tuple(re.findall(r"`(\w+)`", labels)), about) for name, kind, where, labels, about in rows
    ]
    assert shown == [(each.name, each.kind, each.where, each.labels, each.about) for each in (*COUNTED, *GAUGES)]


def test_the_suggested_alerts_ask_for_figures_and_words_that_there_are() -> None:
    block = re.search(r"```yml\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    names = {each.name for each in (*COUNTED, *GAUGES)}
    for rule in yaml.safe_load(block[1])["groups"][0]["rules"]:
        assert set(re.findall(r"turnkeeper_\w+", rule["expr"])) <= names, rule["alert"]
        for words in re.findall(r'stop_reason=~"([^"]+)"', rule["expr"]):
            assert set(words.split("|")) <= {reason.value for reason in StopReason}
