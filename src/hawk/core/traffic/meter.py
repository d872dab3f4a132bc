"""What a lane counts on every request, as cheaply as Python can: a few additions to the current quarter of a second."""

from __future__ import annotations

from hawk.core.traffic.rates import Window

CELL = 0.25


class Cell:
    """A quarter of a second.

    Attributes:
        low: The fewest requests in flight in it.
        sent: Requests let go in it.
        tokens: Used by requests that ended in it.
        next: The one after it.
    """

    __slots__ = ("began", "low", "next", "sent", "tokens")

    def __init__(self, began: float, low: int) -> None:
        self.began = began
        self.low = low
        self.sent = 0
        self.tokens = 0
        self.next: Cell | None = None

    def lasting(self, level: int) -> int:
        """So many were surely in flight when a request of this level reached the provider: others end meanwhile."""
        low = self.low
        if self.next is not None and self.next.low < low:
            low = self.next.low
        return level if level <= low else low + 1


class Meter:
    """The current cell, and the last minute of those before it. The lane writes to `cell` itself."""

    def __init__(self, now: float) -> None:
        self.cell = Cell(now, 0)
        self.ends = now + CELL
        self._sent, self._tokens = Window(), Window()

    def turn(self, now: float, in_flight: int) -> Cell:
        """Begin the next cell, since `ends` has passed."""
        cell = self.cell
        if cell.sent:
            self._sent.add(cell.began, cell.sent)
        if cell.tokens:
            self._tokens.add(cell.began, cell.tokens)
        self.ends = now + CELL
        self.cell = cell.next = Cell(now, in_flight)
        return self.cell

    def take_back(self, cell: Cell) -> None:
        """A request that was let go in this cell was refused."""
        if cell is self.cell:
            cell.sent -= 1
        else:
            self._sent.add(cell.began, -1.0)

    def sent(self, now: float) -> float:
        """Requests of the last minute that were let go and not refused."""
        return self._sent.total(now) + self.cell.sent

    def tokens(self, now: float) -> float:
        """Tokens of the last minute."""
        return self._tokens.total(now) + self.cell.tokens

    def oldest_leaves(self, now: float) -> float:
        """When the oldest request of the last minute is a minute old."""
        return self._sent.next_fall(now)
