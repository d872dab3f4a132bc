"""Jobs of "pods" whose run directory is on a volume that they share with the server: nothing is carried but words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hawk.core.states import StopAction
from hawk.runner.pod import Code
from tests.link.podding import LocalPod, Pods, pods
from tests.link.test_pods import check_end, stacks_of
from tests.system import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    with pods(tmp_path_factory.mktemp("shared"), HAWK_TEST_SHARED="1") as found:
        yield found


def pod(system: Pods, job: str) -> LocalPod:
    """On the server's run root, as the claim is mounted."""
    return system.pod(job, HAWK_ROOT=str(system.root))


def test_a_job_on_the_servers_volume_is_seen_asked_and_stopped_as_any_other(system: Pods) -> None:
    system.submit("seen", seconds=1.5)
    here = pod(system, "seen")
    until("it is seen to run", lambda: system.status("seen").progress.running)
    assert "in_steps" in until("its stacks are there", lambda: stacks_of(system, "seen"))
    assert system.supervisor("seen") is not None
    system.kill_server()
    system.start()
    until("the next server sees it too", lambda: system.status("seen").progress.running)
    with system.client() as client:
        client.stop("seen", StopAction.SCORE)
    assert system.ended("seen") == Code.DONE, here.log.read_text()
    end = system.finish("seen")
    assert (end.status, end.reason) == ("complete", "stopped (score)")
    assert not (here.root / "runs").exists(), "nothing is kept in the pod"
    assert system.leftovers("seen") == []


def test_a_pod_that_is_lost_is_followed_by_one_that_finds_all_that_was_written(system: Pods) -> None:
    system.submit("lost", seconds=0.8)
    first = pod(system, "lost")
    before = until(
        "some attempts are over", lambda: d if len(d := system.lines("lost", "done")) >= 2 else None
    )
    first.kill()
    pod(system, "lost")
    assert system.ended("lost") == Code.DONE
    check_end(system, "lost", before[:1])
