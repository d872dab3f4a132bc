"""What each job has spent on models, and whether that is more than it may."""

from __future__ import annotations

from collections.abc import Callable

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

    def add(self, tokens: int, usd: float | None) -> None:
        self.requests += 1
        self.tokens += tokens
        if usd is None:
            self.unpriced += 1
        else:
            self.usd += usd

    def set(self, *parts: Spend) -> None:
        self.usd = sum(part.usd for part in parts)
        self.tokens = sum(part.tokens for part in parts)
        self.requests = sum(part.requests for part in parts)
        self.unpriced = sum(part.unpriced for part in parts)

    def spend(self) -> Spend:
        return Spend(self.usd, self.tokens, self.requests, self.unpriced)


class Ledger:
    """Spend by job, in memory; whoever restarts hands back what was kept with `restore`.

    Where others spend for the same jobs, what was added here is told to them in batches (`batch`, `arrived`), and what
    they all have spent comes back (`common`). Accounts are that sum and what the others don't know of yet.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._untold: dict[str, _Account] | None = None
        self._batch: dict[str, Spend] = {}
        self._spent: Callable[[str], None] | None = None

    def spend(self, job: str) -> Spend:
        """All zero for a job that is not known."""
        found = self._accounts.get(job)
        return found.spend() if found else Spend()

    def jobs(self) -> list[str]:
        """Jobs that have spent anything."""
        return list(self._accounts)

    def add(self, job: str, usage: Usage, usd: float | None) -> None:
        """Count one request.

        Args:
            usd: What it cost; None: its model has no price.
        """
        tokens = usage.input + usage.output + usage.cache_read + usage.cache_write
        account = self._accounts.get(job)
        if account is None:
            account = self._accounts[job] = _Account()
        account.add(tokens, usd)
        if self._untold is not None and self._spent is not None:
            untold = self._untold.get(job)
            if untold is None:
                untold = self._untold[job] = _Account()
            untold.add(tokens, usd)
            self._spent(job)

    def restore(self, job: str, spend: Spend) -> None:
        """Set what a job has spent so far."""
        account = self._accounts[job] = _Account()
        account.set(spend)

    def share(self, spent: Callable[[str], None]) -> None:
        """Others spend, too: from now on note what they are to be told.

        Args:
            spent: Called with the job after each request.
        """
        self._untold, self._spent = {}, spent

    def batch(self) -> dict[str, Spend]:
        """What the others are to be told, by job: the same again until it has `arrived`."""
        if not self._batch and self._untold:
            self._batch = {job: account.spend() for job, account in self._untold.items()}
            self._untold = {}
        return self._batch

    def arrived(self) -> None:
        """The others know the batch."""
        self._batch = {}

    def common(self, job: str, spend: Spend) -> None:
        """What all together have spent, every batch of ours that has arrived included."""
        untold = self._untold.get(job) if self._untold is not None else None
        account = self._accounts.setdefault(job, _Account())
        account.set(spend, *([untold.spend()] if untold is not None else []))

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
