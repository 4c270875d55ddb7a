"""Figures in the text format of Prometheus, version 0.0.4.

Pure. Labels hold words of the contract alone, so none needs an escape.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from turnkeeper.trace.figures import Figure


class Series:
    """What was counted under one set of labels: how often, the sum, and how often up to each bucket's bound."""

    __slots__ = ("count", "total", "within")

    def __init__(self, buckets: int) -> None:
        self.count = 0
        self.total = 0.0
        self.within = [0] * (buckets + 1)

    def take(self, value: float, bounds: Sequence[float]) -> None:
        """One more observation; a bound belongs to its bucket."""
        self.count += 1
        self.total += value
        self.within[bisect_left(bounds, value)] += 1


def render_counted(figure: Figure, series: Mapping[tuple[str, ...], Series]) -> str:
    """A family of counters or histograms; one without labels is there before anything was counted."""
    known = series if series or figure.labels else {(): Series(len(figure.buckets))}
    lines = [line for labels, each in known.items() for line in _lines(figure, labels, each)]
    return _page(figure, lines)


def render_gauge(figure: Figure, value: float) -> str:
    """One gauge without labels."""
    return _page(figure, [f"{figure.name} {_number(value)}"])


def _page(figure: Figure, lines: Sequence[str]) -> str:
    head = [f"# HELP {figure.name} {figure.about}", f"# TYPE {figure.name} {figure.kind}"]
    return "".join(f"{line}\n" for line in [*head, *lines])


def _lines(figure: Figure, labels: tuple[str, ...], series: Series) -> list[str]:
    named = list(zip(figure.labels, labels, strict=True))
    if figure.kind == "counter":
        return [f"{figure.name}{_braced(named)} {_number(series.total)}"]
    bounds, so_far, lines = [*map(_number, figure.buckets), "+Inf"], 0, list[str]()
    for bound, count in zip(bounds, series.within, strict=True):
        so_far += count
        lines.append(f"{figure.name}_bucket{_braced([*named, ('le', bound)])} {so_far}")
    return [
        *lines,
        f"{figure.name}_sum{_braced(named)} {_number(series.total)}",
        f"{figure.name}_count{_braced(named)} {series.count}",
    ]


def _braced(named: Sequence[tuple[str, str]]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in named) + "}" if named else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
