"""Why nothing is wrong."""

from hawk.core.diagnosis.about.table import Table
from hawk.core.diagnosis.causes import Cause, Who

HEALTHY: Table = {
    Cause.PROGRESSING: (
        "it progresses",
        "Attempts do something and end. Failures that alternate with successes are progress.",
        "Ends of attempts, activity and answered calls.",
        "Nothing",
        "hawk watch {job}",
        Who.WAIT,
    ),
    Cause.FINISHING: (
        "it is finishing",
        "All attempts have ended; results are being written and indexed.",
        "The counts of the plan.",
        "Nothing",
        "hawk watch {job}",
        Who.WAIT,
    ),
    Cause.LONG_TAIL: (
        "the last attempts",
        "Most attempts have ended, and the last ones take longer than the others.",
        "The counts, and how long such attempts took before.",
        "Nothing, unless the time is not worth it: score them as they are",
        "hawk watch {job}",
        Who.WAIT,
    ),
}
