"""What each job has spent on models, and whether that is more than it may."""

from __future__ import annotations

import msgspec

from hawk.core.traffic.usage import Usage


class Budget(msgspec.Struct, frozen=True):
    """What a job may spend; None: no bound.

    Attributes:
        usd: Dollars.
        tokens: Input, output and cached tokens together.
    """

    usd: float | None = None
    tokens: int | None = None


class Spend(msgspec.Struct, frozen=True):
    """What a job has spent.

    Attributes:
        usd: Dollars of the requests that have a price.
        tokens: Input, output and cached tokens together.
        requests: Requests that were counted.
        unpriced: Those among them whose model has no price.
    """

    usd: float = 0.0
    tokens: int = 0
    requests: int = 0
    unpriced: int = 0


class _Account:
    __slots__ = ("requests", "tokens", "unpriced", "usd")

    def __init__(self) -> None:
        self.usd = 0.0
        self.tokens = 0
        self.requests = 0
        self.unpriced = 0


class Ledger:
    """Spend by job, in memory; whoever restarts hands back what was kept with `restore`."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def spend(self, job: str) -> Spend:
        """All zero for a job that is not known."""
        found = self._accounts.get(job)
        return Spend(found.usd, found.tokens, found.requests, found.unpriced) if found else Spend()

    def jobs(self) -> list[str]:
        """Jobs that have spent anything."""
        return list(self._accounts)

    def add(self, job: str, usage: Usage, usd: float | None) -> None:
        """Count one request.

        Args:
            usd: What it cost; None: its model has no price.
        """
        account = self._accounts.get(job)
        if account is None:
            account = self._accounts[job] = _Account()
        account.requests += 1
        account.tokens += usage.input + usage.output + usage.cache_read + usage.cache_write
        if usd is None:
            account.unpriced += 1
        else:
            account.usd += usd

    def restore(self, job: str, spend: Spend) -> None:
        """Set what a job has spent so far."""
        account = self._accounts[job] = _Account()
        account.usd, account.tokens = spend.usd, spend.tokens
        account.requests, account.unpriced = spend.requests, spend.unpriced

    def forget(self, job: str) -> None:
        """The job is over."""
        self._accounts.pop(job, None)

    def exhausted(self, job: str, budget: Budget) -> str | None:
        """One line that says which bound is reached and how much was spent; None: go on."""
        account = self._accounts.get(job)
        if account is None:
            account = _Account()
        if budget.usd is not None and account.usd >= budget.usd:
            return f"{_money(account.usd)} of {_money(budget.usd)} are spent"
        if budget.tokens is not None and account.tokens >= budget.tokens:
            return f"{account.tokens:,} of {budget.tokens:,} tokens are used"
        return None


def _money(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 0.1 or usd == 0 else f"${usd:.4g}"
