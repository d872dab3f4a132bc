"""What waits for its turn, and what somebody stopped or paused."""

from __future__ import annotations

import http.client
import socket
import tempfile
from pathlib import Path

from hawk.core.states import Operation, StopAction
from tests.faults.lab.bench import Bench, Case
from tests.faults.lab.replies import answered
from tests.faults.lab.run import Run, after, marked, running, submitted
from tests.faults.lab.scenario import scenario


@scenario("scheduler.no_slot")
def more_attempts_than_places(bench: Bench) -> Case:
    places = bench.number(1, 2)
    return bench.case(
        bench.samples(places + bench.number(4, 8), ["sleep", 20_000]),
        max_samples=places,
        present=marked("sleep", places),
        must=["max_samples"],
    )


@scenario("scheduler.no_slot")
def more_sandboxes_than_places(bench: Bench) -> Case:
    return bench.case(
        bench.samples(6, ["sleep", 20_000]), boxed=True, max_sandboxes=2, present=marked("sleep", 2)
    )


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=5)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(5)
        self.sock.connect(self._path)


def pause(run: Run) -> None:
    """Pause every worker of a job, as `inspect ctl process pause --now` does."""
    from hawk.bridge.control import ControlSocket
    from hawk.runner.datahome import link_path

    for home in run.run_dir.path.glob("workers/[0-9]*"):
        path = run.until(lambda home=home: ControlSocket(link_path(run.system.links, home)).find())  # type: ignore[misc]
        connection = _Unix(str(path))
        connection.request("POST", "/pause?now=true")
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        connection.close()


@scenario("scheduler.paused")
def paused_by_somebody(bench: Bench) -> Case:
    model = bench.model(answered(0.5))
    paused: list[bool] = []

    def act(run: Run) -> None:
        pause(run)
        paused.append(True)

    return bench.case(
        bench.samples(3, ["ask", 500]),
        actions=[after(lambda run: len(model.provider.received) > 2, act)],
        present=lambda run: paused,
    )


@scenario("scheduler.stopping")
def stop_waits_for_scorers(bench: Bench) -> Case:
    bench.model(answered(0.5))

    def stop(run: Run) -> None:
        with run.system.client() as client:
            client.stop(run.job, StopAction.SCORE)

    return bench.case(
        bench.samples(3, ["ask", 500]),
        task={"score": {"*": ["slow", 60]}},
        actions=[after(running, stop, bench.between(1, 3))],
        present=lambda run: (found := run.snapshot()) and found.operation is Operation.STOPPING,
    )


@scenario("scheduler.queued", alone=True, dead=False)
def nothing_launches_it(bench: Bench) -> Case:
    """Who should start its supervisor does not answer: the job is accepted, and not launched yet."""
    folder = Path(bench.closing.enter_context(tempfile.TemporaryDirectory(prefix="hkt-")))
    silent = bench.closing.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    silent.bind(str(folder / "s"))
    silent.listen()
    case = {"environ": {"HAWK_TEMPLATE": str(folder / "s")}}
    return bench.case([bench.sample(["ask"])], present=submitted, case=case)
