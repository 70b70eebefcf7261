"""The rates of a table as bars: pure."""

from taco_launch.bench.compare.tables import Table, number

_WIDTH = 40
_EIGHTHS = 8
# Unicode 2588 to 258F: a whole cell, and its eighths from one to seven.
_WHOLE, _PARTS = "\u2588", "\u258f\u258e\u258d\u258c\u258b\u258a\u2589"


def bars(table: Table) -> list[tuple[str, str, str, str]]:
    """Return ranks, variant, bar and rate of each cell that has a sample; the highest rate has the longest bar."""
    entries = sorted(table.entries, key=lambda entry: (entry.cell.ranks, table.variants.index(entry.cell.variant)))
    highest = max(entry.rate.value for entry in entries)
    return [
        (str(entry.cell.ranks), entry.cell.variant, _bar(entry.rate.value, highest), number(entry.rate.value))
        for entry in entries
    ]


def _bar(value: float, highest: float) -> str:
    whole, part = divmod(round(_EIGHTHS * _WIDTH * value / highest), _EIGHTHS)
    return _WHOLE * whole + (_PARTS[part - 1] if part else "")
