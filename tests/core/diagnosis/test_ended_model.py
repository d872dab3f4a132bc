"""An attempt may ask other models than its task's: an error belongs to the one that was asked."""

from hawk.core.diagnosis.diagnose import explain
from hawk.core.diagnosis.evidence import CallGroup, ErrorGroup, Evidence, Job, Model, TaskCount
from hawk.core.snapshot import Progress
from hawk.core.states import JobStatus
from tests.core.diagnosis.build import NOW


def test_an_error_of_another_model_is_not_said_of_the_tasks_own() -> None:
    refused = CallGroup("model_not_found", 2, 404, 404, said="no such model", uuids=["u1"], streak=2)
    grader = Model("openai", model="grader", name="openai/grader", calls=[refused], failing=2)
    own = Model("openai", model="main", name="openai/main", recent="SS", last_ok=NOW.isoformat())
    error = ErrorGroup("NotFoundError", "Error code: 404 - no such model", 1, task="t", uuids=["u1"])
    document = Evidence(
        "j", NOW.isoformat(), job=Job(phase="ended", status=JobStatus.FAILED), models=[own, grader], ended=[error],
        progress=Progress(total=4, completed=3, errored=1), tasks=[TaskCount("t", "t", "openai/main")],
    )  # fmt: skip
    found = [v for v in explain(document, NOW).verdicts if v.cause == "model_not_found"]
    assert [v.subject for v in found] == ["openai/grader"]
