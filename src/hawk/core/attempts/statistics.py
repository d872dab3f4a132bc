"""Exact statistics over attempts and pairs: pass@k, pass^k, and the tests that compare two runs."""

from __future__ import annotations

import math

SIGNIFICANT = 0.05
"""Below this p a difference is taken for real."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that at least one of k attempts passes, from c passes in n attempts; unbiased.

    Chen et al. 2021, "Evaluating Large Language Models Trained on Code", equation 1.

    Raises:
        ValueError: k is more than n, or the counts make no sense.
    """
    _check(n, c, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_pow_k(n: int, c: int, k: int) -> float:
    """Chance that k attempts all pass (pass^k), from c passes in n attempts; unbiased.

    Yao et al. 2024, "τ-bench", section 4: the counterpart of pass@k.

    Raises:
        ValueError: k is more than n, or the counts make no sense.
    """
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def _check(n: int, c: int, k: int) -> None:
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"need 0 <= c <= n and 1 <= k <= n, not n={n}, c={c}, k={k}")


def mcnemar(lost: int, gained: int) -> float:
    """Two-sided p of the exact test that a pair is as likely to be lost as to be gained.

    McNemar 1947 in its exact form: twice the smaller tail of Binomial(lost + gained, 1/2). In whole numbers,
    so that it is right for thousands of flips too.
    """
    flips = lost + gained
    term = tail = 1
    for i in range(1, min(lost, gained) + 1):
        term = term * (flips - i + 1) // i
        tail += term
    return min(1.0, 2 * tail / (1 << flips))


def fisher(hits: int, size: int, other_hits: int, other_size: int) -> float:
    """One-sided p of Fisher's exact test: how often chance alone puts at least `hits` of all hits here.

    Args:
        hits: Of the `size` that are here.
        other_hits: Of the `other_size` that are elsewhere.

    Raises:
        ValueError: more hits than there are things to hit.
    """
    if not (0 <= hits <= size and 0 <= other_hits <= other_size):
        raise ValueError(f"need 0 <= hits <= size, not {hits} of {size} and {other_hits} of {other_size}")
    drawn = hits + other_hits
    every = _log_comb(size + other_size, drawn)
    terms = (
        math.exp(_log_comb(size, here) + _log_comb(other_size, drawn - here) - every)
        for here in range(hits, min(size, drawn) + 1)
    )
    return min(1.0, math.fsum(terms))


def _log_comb(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def smallest_loss(flips: float) -> int:
    """The least net loss of pairs that McNemar's test calls significant among as many flips as noise makes.

    A real loss adds flips, and more flips hide a loss better: a smaller one could not have been seen.

    Args:
        flips: How many pairs flip by noise alone; an even number near it is taken, for as many go each way.
    """
    total = 2 * round(flips / 2)
    if mcnemar(total, 0) >= SIGNIFICANT:
        return next(loss for loss in range(total, 100) if mcnemar(loss, 0) < SIGNIFICANT)
    gained, too_many = 0, total // 2
    while too_many - gained > 1:
        middle = (gained + too_many) // 2
        if mcnemar(total - middle, middle) < SIGNIFICANT:
            gained = middle
        else:
            too_many = middle
    return total - 2 * gained
