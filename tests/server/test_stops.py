"""Which attempt a person means who asks to stop one."""

import pytest

from hawk.core.snapshot import Sample, Task
from hawk.core.states import SamplePhase
from hawk.errors import ConflictError, NotFoundError
from hawk.server.services.stops import in_flight

TASKS = [
    Task(
        "left",
        samples=[
            Sample("s0", 1, 1, "u1", SamplePhase.COMPLETED, True),
            Sample("s0", 2, 2, "u2", SamplePhase.RUNNING),
            Sample("s1", 1, 1, "u3", SamplePhase.INIT),
            Sample("s2", 1, 1, None, SamplePhase.INIT),
            Sample("s3", 1, 1, None, SamplePhase.WAITING),
        ],
    ),
    Task("right", samples=[Sample("s1", 1, 1, "u4", SamplePhase.SCORING)]),
]


@pytest.mark.parametrize(
    ("wanted", "uuid"),
    [("u2", "u2"), ("s0", "u2"), ("s0/2", "u2"), ("left/s0/2", "u2"), ("left/s1/1", "u3"), ("u4", "u4")],
)
def test_an_attempt_is_known_by_each_of_its_names(wanted: str, uuid: str) -> None:
    assert in_flight(TASKS, "job", wanted) == uuid


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("u1", "has ended (completed)"),
        ("s0/1", "has ended (completed)"),
        ("s3", "has not begun"),
        ("s2", "left/s2/1 is just starting"),
        ("s1", "2 attempts in flight are called 's1': left/s1/1 (u3), right/s1/1 (u4)."),
    ],
)
def test_one_that_can_not_be_stopped_is_refused_with_the_reason(wanted: str, why: str) -> None:
    with pytest.raises(ConflictError) as caught:
        in_flight(TASKS, "job", wanted)
    assert why in caught.value.message


@pytest.mark.parametrize("wanted", ["s9", "", "left/s0", "None"])
def test_one_that_is_not_there_is_not_found(wanted: str) -> None:
    with pytest.raises(NotFoundError, match=f"No sample {wanted!r}") as caught:
        in_flight(TASKS, "job", wanted)
    assert caught.value.remedy == "hawk list samples job"
