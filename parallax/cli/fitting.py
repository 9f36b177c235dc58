"""Tables that no terminal is too narrow for: what does not fit side by side stands one below the other, and nothing is cut off."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import StyleType
from rich.table import Column, Table
from rich.text import Text

from parallax.picture.text import visible

_FOLDED = 28
"""Letters that a line of a sentence has at least, where it shares a line with other cells."""
_BORDER, _GAPS = 3, (2, 1)
"""Letters between two columns, with lines and without: two, or one where two are too much."""


@dataclass(frozen=True, slots=True)
class _Widths:
    """Of a column: its heading in one line, its heading's longest word, and its longest cell."""

    heading: int
    word: int
    cells: int
    folds: bool

    @property
    def least(self) -> int:
        """What its cells need."""
        return min(self.cells, _FOLDED) if self.folds else self.cells


class FittingTable(Table):
    """A table of texts that draws itself as well as there is room: with lines, without, or a row's cells one below the other.

    Texts are drawn as they are, for a name may hold brackets too; what shall be coloured is a `rich.text.Text`. Letters of a
    text that a terminal would obey are shown by their numbers.
    """

    def __init__(self, title: str | None = None) -> None:
        super().__init__(title=None if title is None else Text(visible(title), "table.title"))

    def add_row(
        self, *cells: RenderableType | None, style: StyleType | None = None, end_section: bool = False
    ) -> None:
        """One row; a text in it is no markup."""
        drawn = (Text(visible(cell)) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*drawn, style=style, end_section=end_section)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What is drawn."""
        widths = [self._widths_of(column, console) for column in self.columns]
        whole = sum(max(item.heading, item.least) for item in widths) + _BORDER * len(widths) + 1
        between = len(widths) - 1
        spare = options.max_width - sum(max(item.word, item.least) for item in widths)
        gap = next((gap for gap in _GAPS if gap * between <= spare), None)
        if whole <= options.max_width:
            yield from super().__rich_console__(console, options)
        elif gap is not None:
            yield self._without_lines(widths, gap, spare - gap * between)
        else:
            yield from self._below_each_other()

    def _widths_of(self, column: Column, console: Console) -> _Widths:
        heading = _text(column.header, console)
        return _Widths(
            heading.cell_len,
            max((Text(word).cell_len for word in heading.plain.split()), default=0),
            max((_text(cell, console).cell_len for cell in column.cells), default=0),
            column.overflow == "fold",
        )

    def _without_lines(self, widths: list[_Widths], gap: int, left: int) -> Table:
        """As wide as cells need; what is left of the room goes to headings and sentences."""
        drawn = Table(title=self._bold_title(), box=None, pad_edge=False, padding=(0, gap, 0, 0))
        for column, item in zip(self.columns, widths, strict=True):
            width = max(item.word, item.least)
            wanted = (item.cells if item.folds else item.heading) - width
            more = max(0, min(left, wanted))
            left -= more
            drawn.add_column(column.header, justify=column.justify, overflow="fold", width=width + more)
        for row, cells in zip(self.rows, self._cells_by_row(), strict=True):
            drawn.add_row(*cells, style=row.style)
        return drawn

    def _below_each_other(self) -> RenderResult:
        if title := self._bold_title():
            yield title
        for number, (row, cells) in enumerate(zip(self.rows, self._cells_by_row(), strict=True)):
            if number:
                yield Text("")
            block = Table.grid(padding=(0, _GAPS[0], 0, 0))
            block.add_column(style="bold", no_wrap=True)
            block.add_column(overflow="fold")
            for column, cell in zip(self.columns, cells, strict=True):
                block.add_row(column.header, cell, style=row.style)
            yield block

    def _bold_title(self) -> Text | None:
        return None if self.title is None else Text(str(self.title), "bold")

    def _cells_by_row(self) -> list[tuple[RenderableType, ...]]:
        return list(zip_longest(*(column.cells for column in self.columns), fillvalue=""))


def _text(cell: RenderableType, console: Console) -> Text:
    return console.render_str(cell) if isinstance(cell, str) else Text(str(cell))
