"""Causes that lie with the attempt itself: its agent, its tools, its scorer."""

from hawk.core.diagnosis.about.table import Table
from hawk.core.diagnosis.causes import Cause, Who

ATTEMPT: Table = {
    Cause.RETRY_LOOP: (
        "the same error again and again",
        "The attempt is run again after an error, and ends with the same one at the same place.",
        "Tries of the attempt that ended with the same error.",
        "Mend the error, or stop retrying: retry_on_error",
        "hawk logs {job} --sample {uuid}",
        Who.AUTHOR,
    ),
    Cause.LIMIT_HIT: (
        "attempts end at a limit",
        "A limit of tokens, messages, time or cost ended attempts; they are scored as they are. It is not a bug.",
        "The limit that Inspect names.",
        "Raise it if it was not meant",
        "hawk list samples {job}",
        Who.AUTHOR,
    ),
    Cause.AGENT_LOOPING: (
        "the agent repeats itself",
        "The agent makes the same call again and again and gets the same answer: it won't get further.",
        "The last calls of the attempt: same tool, same arguments, same result.",
        "Score the attempt as it is, or give attempts a message limit",
        "hawk transcript {uuid}",
        Who.AUTHOR,
    ),
    Cause.SCORER_HUNG: (
        "a scorer does not end",
        "The work is done, and its scorer runs for far longer than usual without doing anything.",
        "Phase scoring, and where its code waits.",
        "See the line; mark the attempt as an error to run it again",
        "hawk stacktrace {job} --sample {uuid}",
        Who.AUTHOR,
    ),
    Cause.SCORER_ERROR: (
        "a scorer fails",
        "The work is done, and its scorer raises an error.",
        "Errors in the phase of scoring.",
        "Mend the scorer; `hawk rescore` needs no new attempt",
        "hawk logs {job} --level error",
        Who.AUTHOR,
    ),
    Cause.SETUP_FAILED: (
        "an attempt's setup fails",
        "The sample's setup script or files fail in the sandbox, before the agent begins.",
        "Errors between the sandbox's start and the agent's.",
        "Run the setup by hand in a sandbox",
        "hawk sandbox shell {uuid}",
        Who.AUTHOR,
    ),
    Cause.AWAITING_APPROVAL: (
        "a person is asked for approval",
        "A tool call waits for somebody to approve it.",
        "The attempt's own word.",
        "Answer it",
        "hawk watch {job}",
        Who.OPERATOR,
    ),
    Cause.AWAITING_INPUT: (
        "a person is asked a question",
        "The agent asked something that only a person can answer.",
        "The attempt's own word.",
        "Answer it",
        "hawk watch {job}",
        Who.OPERATOR,
    ),
}
