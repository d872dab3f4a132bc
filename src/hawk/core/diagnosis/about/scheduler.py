"""Why something waits for its turn."""

from hawk.core.diagnosis.about.table import Table
from hawk.core.diagnosis.causes import Cause, Who

SCHEDULER: Table = {
    Cause.NO_SLOT: (
        "attempts wait for a place",
        "As many attempts run as may run at once; the others wait for one to end.",
        "The bound that applies, and how many hold a place.",
        "Nothing while attempts end; raise the bound that is named for more at once",
        "hawk watch {job}",
        Who.WAIT,
    ),
    Cause.PAUSED: (
        "it is paused",
        "Somebody paused the job, or a model of it.",
        "The worker's or the supervisor's word.",
        "Resume it when it should go on",
        "hawk watch {job}",
        Who.OPERATOR,
    ),
    Cause.QUEUED: (
        "it waits to be started",
        "The job is accepted and has not been started.",
        "The queue of jobs.",
        "Wait for the jobs before it",
        "hawk list eval-sets",
        Who.WAIT,
    ),
    Cause.STOPPING: (
        "it is being stopped",
        "A stop was asked for; what is in flight is being ended, and scored where that was asked.",
        "The request, and what is still in flight.",
        "Wait; a stop ends within a minute and a half",
        "hawk watch {job}",
        Who.WAIT,
    ),
}
