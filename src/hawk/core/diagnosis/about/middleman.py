"""Causes that lie with the middleman, between workers and providers."""

from hawk.core.diagnosis.about.table import Table
from hawk.core.diagnosis.causes import Cause, Who

MIDDLEMAN: Table = {
    Cause.MIDDLEMAN_DOWN: (
        "the middleman can't be reached",
        "The proxy between workers and providers is gone or does not answer; every model call fails at once.",
        "The runner's own look at the middleman fails, and calls fail without ever reaching a provider.",
        "It is started again by itself where Hawk runs it; else start it",
        "hawk middleman status",
        Who.OPERATOR,
    ),
    Cause.TOKEN_EXPIRED: (
        "the job's token has expired",
        "The job's token for the middleman is past its date; every model call is refused.",
        "The middleman refuses with its own word for it.",
        "Resume the job: it gets a new token, and what has ended is kept",
        "hawk eval-set resume {job}",
        Who.OPERATOR,
    ),
    Cause.TOKEN_REVOKED: (
        "the job's token was revoked",
        "Somebody ended the job's access to models (a stop, a delete, an operator).",
        "The middleman refuses with its own word for it.",
        "If that was not meant, resume the job: it gets a new token",
        "hawk eval-set resume {job}",
        Who.OPERATOR,
    ),
    Cause.MODEL_NOT_PERMITTED: (
        "this model is not permitted",
        "The middleman does not let this job use the model.",
        "The middleman refuses with its own word for it.",
        "Ask for access to the model, or use another",
        "hawk middleman models",
        Who.OPERATOR,
    ),
    Cause.QUEUE_WAIT: (
        "requests wait for their turn",
        "More requests wait than may be with the provider at once. The places are shared fairly between jobs.",
        "Requests of this job that wait in the model's lane, while others are with the provider.",
        "Nothing while it moves; a higher ceiling for the model, or less other work, makes it faster",
        "hawk middleman status",
        Who.WAIT,
    ),
    Cause.BUDGET_EXHAUSTED: (
        "the budget is used up",
        "The job has spent what its budget allows. It is stopped, and what has ended is kept.",
        "The job's account at the middleman.",
        "Raise middleman.budget and submit the eval set again: finished attempts are kept",
        "hawk report {job}",
        Who.OPERATOR,
    ),
    Cause.BREAKER_OPEN: (
        "the middleman holds back calls",
        "After a row of failures the middleman refuses calls of this model at once and tries one now and then, so that attempts don't wait for nothing.",
        "The model's breaker, with what the provider said last.",
        "Mend what the provider says; it closes with the first answer",
        "hawk middleman status",
        Who.PROVIDER,
    ),
    Cause.REPLAY_MISS: (
        "a replayed answer is missing",
        "The job replays recorded answers, and made a request that was not recorded.",
        "The middleman's own word for it, with the nearest recorded request.",
        "Record again, or find what changed: the log shows the difference",
        "hawk logs {job} --level warning",
        Who.AUTHOR,
    ),
    Cause.PROXY_FAULT: (
        "the middleman fails, the provider does not",
        "Calls fail at the middleman, while the provider answers when it is asked directly.",
        "Errors of the middleman's own without a provider's status, and an answer to a direct question.",
        "See the middleman's log; `middleman: off` in the eval set goes around it",
        "hawk probe {model} --job {job}",
        Who.OPERATOR,
    ),
}
