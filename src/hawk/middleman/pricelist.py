"""List prices: those that come with Hawk, those that an operator brought up to date, those of the settings.

A file of prices is YAML: `as_of`, and under `models` Inspect's name of each model and its price in US dollars per
million tokens. `hawk middleman prices --update` also takes LiteLLM's `model_prices_and_context_window.json`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from hawk.config.entries import Strict
from hawk.config.explain import explain
from hawk.config.load import read_text
from hawk.config.problems import Problem, config_error
from hawk.config.source import parse_yaml
from hawk.core.traffic.prices import Price
from hawk.middleman.settings import PriceEntry
from hawk.store.rundir import write_atomic

SHIPPED = Path(__file__).with_name("prices.yaml")
FILE = "middleman-prices.yaml"

_DATED = re.compile(r"-(?:20\d\d-\d\d-\d\d|20\d{6}|latest)$")
_MILLION = 1e6
_LITELLM = {
    "openai": "openai",
    "anthropic": "anthropic",
    "gemini": "google",
    "mistral": "mistral",
    "deepseek": "deepseek",
    "groq": "groq",
    "together_ai": "together",
    "fireworks_ai": "fireworks",
    "openrouter": "openrouter",
    "perplexity": "perplexity",
    "sambanova": "sambanova",
    "moonshot": "moonshot",
    "cloudflare": "cloudflare",
}
"""LiteLLM's names of providers to the first word of Inspect's names of models."""


class PriceFile(Strict):
    """A file of prices."""

    as_of: str | None = None
    """The day on which the prices were right, as far as the author knows."""

    models: dict[str, PriceEntry]
    """Prices by Inspect's name of the model."""


class PriceList:
    """Prices by name. What is given later wins.

    Attributes:
        as_of: Day of the newest file.
    """

    def __init__(self, lists: Iterable[Mapping[str, Price]], as_of: str | None = None) -> None:
        self._prices: dict[str, Price] = {}
        for prices in lists:
            self._prices.update(prices)
        self.as_of = as_of

    def find(self, names: Iterable[str]) -> Price | None:
        """The price of a model by one of its names, else by one of them without its date or `-latest`."""
        names = tuple(names)
        for name in (*names, *(_DATED.sub("", name) for name in names)):
            if name in self._prices:
                return self._prices[name]
        return None

    def items(self) -> list[tuple[str, Price]]:
        """Every name and its price, by name."""
        return sorted(self._prices.items())


def price_of(entry: PriceEntry) -> Price:
    """The price that an entry says. A cache that it says nothing about costs as much as none."""
    read = entry.input if entry.cache_read is None else entry.cache_read
    write = entry.input if entry.cache_write is None else entry.cache_write
    return Price(entry.input, entry.output, read, write, entry.context)


def prices_of(entries: Mapping[str, PriceEntry]) -> dict[str, Price]:
    """The prices that entries say."""
    return {name: price_of(entry) for name, entry in entries.items()}


@functools.cache
def shipped() -> tuple[Mapping[str, Price], str]:
    """The prices that come with Hawk, and their day."""
    data: dict[str, Any] = yaml.load(  # the safe loader, written in C where there is one
        SHIPPED.read_text("utf-8"),
        Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader),  # noqa: S506
    )
    entries = PriceFile.model_validate({**data, "as_of": str(data["as_of"])})
    return prices_of(entries.models), str(entries.as_of)


def load_prices(home: Path, more: Mapping[str, PriceEntry]) -> tuple[PriceList, PriceList]:
    """All prices; and those alone that an operator gave, which also count where a job brought its own provider.

    Args:
        home: Where `hawk middleman prices --update` puts its file.
        more: Prices of the settings, which win.

    Raises:
        ConfigError: The file is wrong.
    """
    prices, as_of = shipped()
    path = home / FILE
    updated = PriceFile(models={})
    if path.exists():
        updated = parse_prices(read_text(path), str(path))
        as_of = updated.as_of or as_of
    own = (prices_of(updated.models), prices_of(more))
    return PriceList((prices, *own), as_of), PriceList(own, updated.as_of)


def parse_prices(text: str, name: str) -> PriceFile:
    """Check a file of prices, ours or LiteLLM's.

    Raises:
        ConfigError: It is neither, or something in it is wrong.
    """
    if text.lstrip().startswith("{"):
        try:
            data = json.loads(text)
        except ValueError:
            data = None
        if isinstance(data, dict) and "models" not in data:
            return PriceFile(models=from_litellm(data))
    source = parse_yaml(text, name, None, what="A file of prices")
    try:
        return PriceFile.model_validate(source.data)
    except ValidationError as ex:
        raise config_error(name, explain(ex, source, PriceFile)) from None


def save_prices(home: Path, prices: PriceFile) -> Path:
    """Keep prices in a home, instead of those that were kept there.

    Raises:
        ConfigError: There is none in it.
        StorageError: The file can't be written.
    """
    if not prices.models:
        raise config_error(FILE, [Problem("There is no price in it", FILE)])
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = yaml.safe_dump(prices.model_dump(exclude_none=True), sort_keys=True, width=200)
    write_atomic(home / FILE, text.encode())
    return home / FILE


def from_litellm(data: Mapping[str, Any]) -> dict[str, PriceEntry]:
    """Prices of the models that go through the middleman, from LiteLLM's list: dollars a token become dollars a million.

    Entries without a price for both input and output are left out, and so are long-context surcharges.
    """
    found: dict[str, PriceEntry] = {}
    for name, entry in data.items():
        word = _LITELLM.get(entry.get("litellm_provider", "")) if isinstance(entry, dict) else None
        if word is None or entry.get("mode") not in ("chat", "responses", "completion", "embedding"):
            continue
        plain = name.removeprefix(f"{entry['litellm_provider']}/")
        costs = [
            _per_million(entry.get(f"{field}_cost_per_token"))
            for field in ("input", "output", "cache_read_input", "cache_creation_input")
        ]
        if costs[0] is None or costs[1] is None or "container" in plain:
            continue
        context = entry.get("max_input_tokens")
        found[f"{word}/{plain}"] = PriceEntry(
            input=costs[0],
            output=costs[1],
            cache_read=costs[2],
            cache_write=costs[3],
            context=context if isinstance(context, int) and context > 0 else None,
        )
    return found


def _per_million(value: object) -> float | None:
    return round(value * _MILLION, 6) if isinstance(value, int | float) and value >= 0 else None
