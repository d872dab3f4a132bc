"""What scenarios are made from: names that no rule can know, providers with scripts, eval sets of steps."""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.lab import tasks
from tests.faults.lab.replies import answered
from tests.middleman.provider import Provider, Say
from tests.system import System

if TYPE_CHECKING:
    from tests.faults.lab.run import Run

_SOURCE = Path(tasks.__file__)
_RENAMED = ("lab_task", "lab_shell", "lab_publish", "lab_scorer", "slow_person", "in_steps")
_WORDS = [
    "amber",
    "basil",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heron",
    "indigo",
    "juniper",
    "kelp",
    "lotus",
    "maple",
    "nectar",
    "olive",
    "pebble",
    "quartz",
    "raven",
    "sable",
    "tulip",
    "umber",
    "violet",
    "willow",
    "yarrow",
    "zephyr",
    "acorn",
    "birch",
    "cobalt",
    "dune",
    "elm",
    "falcon",
    "gorse",
    "hazel",
    "iris",
    "jade",
    "lark",
]

Probe = Callable[["Run"], object]
Action = Callable[["Run"], None]


@dataclass(frozen=True)
class Model:
    """A model with its provider. `name`: Inspect's; `asked`: as its provider hears it."""

    name: str
    asked: str
    provider: Provider
    args: dict[str, Any]
    secrets: dict[str, str]

    @property
    def entry(self) -> Any:
        if not self.args:
            return self.name
        return {"package": "inspect-ai", "items": [{"name": self.name, "args": self.args}]}


@dataclass
class Case:
    """A scenario, made.

    Attributes:
        config: The eval set.
        must: Texts that have to stand in the right verdict.
        present: Whether the fault is there.
        actions: What is done while it runs, each in a thread of its own, from the moment it was submitted.
        environ: More variables of the Hawk that it runs in; of those that run alone.
        middleman: The middleman's settings, instead of the room's own; of those that run alone.
        root: Parent of the run directories; of those that run alone.
        before: Done before it is submitted.
    """

    config: dict[str, Any]
    secrets: dict[str, str]
    present: Probe
    must: tuple[str, ...] = ()
    actions: Sequence[Action] = ()
    environ: dict[str, str] = field(default_factory=dict)
    middleman: str | None = None
    root: Path | None = None
    before: Callable[[System], None] | None = None


class Bench:
    """Makes one case. All that is made is taken away by `close`, what `undoing` holds by `undo`, before its job is.

    Args:
        rng: Where names, sizes and delays come from.
        folder: For files of the case.
    """

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng = rng
        self._words: set[str] = set()
        self.folder = folder
        self.gate = folder / "gate"
        self.gate.mkdir(parents=True)
        self.closing, self.undoing = ExitStack(), ExitStack()
        self.job = f"{self.word()}-{rng.randrange(10_000)}"
        self.renamed = {name: self.word() for name in _RENAMED}
        self.models: list[Model] = []
        self.file = folder / f"{self.word()}.py"
        source = _SOURCE.read_text()
        for name, other in self.renamed.items():
            source = source.replace(name, other)
        self._source = "#\n" * rng.randrange(40) + source
        self.file.write_text(self._source)

    def undo(self) -> None:
        self.undoing.close()

    def close(self) -> None:
        self.undo()
        self.closing.close()

    # --- names and numbers

    def word(self) -> str:
        """A name that was not there before."""
        while True:
            word = f"{self.rng.choice(_WORDS)}{self.rng.choice(_WORDS)}{self.rng.randrange(100)}"
            if word not in self._words:
                self._words.add(word)
                return word

    def between(self, low: float, high: float) -> float:
        return round(self.rng.uniform(low, high), 2)

    def number(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def line(self, mark: str) -> str:
        """`file:line` of the step that bears this mark in `tasks.py`."""
        for number, text in enumerate(self._source.splitlines(), 1):
            if text.endswith(f"# line: {mark}"):
                return f"{self.file.name}:{number}"
        raise ValueError(mark)

    # --- models

    def model(
        self,
        say: Say | None = None,
        *,
        kind: str = "",
        url: str | None = None,
        tls: ssl.SSLContext | None = None,
        everything: bool = False,
        **args: Any,
    ) -> Model:
        """A model of a provider of its own.

        Args:
            say: What it answers to each request; a right answer when left out.
            kind: `narrow`, `calm`, `brittle`: see `room.MIDDLEMAN`.
            url: Its address, when it is not that of the provider.
            tls: It is served with this.
            everything: It answers so to questions that name no model too.
            **args: Of the model, in the eval set.
        """
        provider = Provider(tls=tls)
        self.closing.enter_context(provider)
        service = self.word()
        asked = f"{self.word()}-{kind}-{self.rng.randrange(100)}" if kind else self.word()
        provider.on(say or answered(), model=None if everything else asked, always=True)
        variable = service.upper()
        secrets = {
            f"{variable}_API_KEY": f"key-{self.rng.randrange(1 << 30)}",
            f"{variable}_BASE_URL": url or f"{provider.url}/v1",
        }
        model = Model(f"openai-api/{service}/{asked}", asked, provider, args, secrets)
        self.models.append(model)
        return model

    # --- samples and the eval set

    def sample(self, *steps: Sequence[Any], setup: str | None = None) -> dict[str, Any]:
        """A sample that goes through these steps; its `input` is known to nobody else."""
        word = self.word()
        found: dict[str, Any] = {
            "id": self.word(),
            "input": f"Consider {word}.",
            "steps": [*map(list, steps)],
        }
        return {**found, "setup": setup} if setup else found

    def samples(self, count: int, *steps: Sequence[Any]) -> list[dict[str, Any]]:
        return [self.sample(*steps) for _ in range(count)]

    def task(self, samples: Iterable[dict[str, Any]], **args: Any) -> dict[str, Any]:
        """An item of the eval set's task."""
        return {
            "name": self.renamed["lab_task"],
            "args": {"gate": str(self.gate), "samples": list(samples), **args},
        }

    def case(
        self,
        samples: Iterable[dict[str, Any]] = (),
        *,
        models: Sequence[Model] | None = None,
        items: Sequence[dict[str, Any]] | None = None,
        task: dict[str, Any] | None = None,
        present: Probe | None = None,
        must: Iterable[str] = (),
        actions: Sequence[Action] = (),
        boxed: bool | dict[str, Any] = False,
        case: dict[str, Any] | None = None,
        **config: Any,
    ) -> Case:
        """An eval set.

        Args:
            samples: Of its one task, unless `items` are given.
            models: Those under evaluation; the first that was made when left out.
            task: More arguments of the task.
            present: When the fault is there; when the first model was asked, when left out.
            boxed: In a sandbox; with these fields of a `sandbox.yaml`.
            case: More fields of the case.
            **config: More fields of the eval set.
        """
        if not self.models:
            self.model()
        used = list(models) if models is not None else self.models[:1]
        secrets = {name: value for model in self.models for name, value in model.secrets.items()}
        whole: dict[str, Any] = {
            "tasks": [{"file": str(self.file), "items": list(items or [self.task(samples, **(task or {}))])}],
            "models": [model.entry for model in used],
            "secrets": sorted(secrets),
            **config,
        }
        if boxed or boxed == {}:
            fields = boxed if isinstance(boxed, dict) else {}
            whole["sandbox"] = {"type": "bubblewrap", "config": {"inspect_tools": False, **fields}}
        first = used[0]
        return Case(
            whole, secrets, present or (lambda run: bool(first.provider.received)), tuple(must), actions,
            **(case or {}),
        )  # fmt: skip
