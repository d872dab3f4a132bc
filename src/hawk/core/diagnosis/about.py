"""What each cause means, how it is seen, and what to do: the table that verdicts, docs and help are made from.

`next` is a command with {job}, {uuid} or {model} filled in.
"""

from __future__ import annotations

from dataclasses import dataclass

from hawk.core.diagnosis.causes import Cause, Layer, Who


@dataclass(frozen=True)
class About:
    """One cause.

    Attributes:
        title: A few words, as `hawk diagnose` heads it.
        meaning: What is going on, for somebody who has never met it.
        seen: What it is concluded from, and what it is told apart from.
        remedy: One line: what to do.
        next: A command that can be pasted.
        who: Who can act.
    """

    layer: Layer
    title: str
    meaning: str
    seen: str
    remedy: str
    next: str
    who: Who
    word: str = ""

    @property
    def anchor(self) -> str:
        return f"{self.layer}-{self.word}".replace("_", "-")


_PROVIDER: dict[Cause, tuple[str, str, str, str, str, Who]] = {
    Cause.RATE_LIMITED: (
        "the provider limits the rate",
        "The provider answers 429: more requests or tokens a minute than the account may use. Each refusal costs a pause, and pauses grow.",
        "Status 429 of the provider itself, as the middleman saw it. Refusals that alternate with answers are progress, and only information.",
        "Wait, or run fewer calls at once; the middleman already waits as long as the provider says",
        "hawk middleman status",
        Who.WAIT,
    ),
    Cause.OVERLOADED: (
        "the provider is overloaded",
        "The provider answers 503 or 529: it has no capacity just now, for anybody.",
        "Status 503 or 529 of the provider itself, one after the other without an answer between.",
        "Wait; if it lasts, use another model or region",
        "hawk probe {model} --job {job}",
        Who.WAIT,
    ),
    Cause.SERVER_ERROR: (
        "the provider fails",
        "The provider answers 500, 502 or 504 to every request: something is broken on its side.",
        "A streak of 5xx of the provider itself; the middleman's own errors are told apart.",
        "See the provider's status page; pause the model until it is well",
        "hawk probe {model} --job {job}",
        Who.PROVIDER,
    ),
    Cause.AUTH_REJECTED: (
        "the key is rejected",
        "The provider answers 401 or 403: the key is wrong, revoked, or may not use this model. No retry helps.",
        "Status 401 or 403 of the provider itself; a token of Hawk's own that is refused is another cause.",
        "Set a key that works",
        "hawk middleman keys set",
        Who.OPERATOR,
    ),
    Cause.QUOTA_EXHAUSTED: (
        "the account has no credit left",
        "The provider refuses because the account's credit or monthly quota is used up. It looks like a rate limit, and no waiting helps.",
        "Status 402, or a refusal whose text speaks of quota, credit or billing rather than of a rate.",
        "Add credit to the account, or use another key",
        "hawk middleman keys set",
        Who.OPERATOR,
    ),
    Cause.MODEL_NOT_FOUND: (
        "there is no such model",
        "The provider does not know the model: a misspelt or retired name, or one that this account can't see.",
        "Status 404, or a 400 that says that the model does not exist.",
        "Correct the model's name in the eval set",
        "hawk probe {model} --job {job}",
        Who.AUTHOR,
    ),
    Cause.CONTEXT_OVERFLOW: (
        "the conversation is too long",
        "The request holds more tokens than the model's context window. The same request will fail again, always.",
        "Status 400 with a text about the context length or too many tokens.",
        "Give the attempts a token or message limit, compact the conversation, or use a model with a larger window",
        "hawk transcript {uuid}",
        Who.AUTHOR,
    ),
    Cause.INVALID_REQUEST: (
        "the provider refuses the request",
        "The provider answers 400 or 422: the request itself is wrong (a parameter, a tool's schema, a message). No retry helps.",
        "Status 400, 413 or 422 for another reason than length, model or content.",
        "Correct what the provider's message names",
        "hawk logs {job} --level warning",
        Who.AUTHOR,
    ),
    Cause.CONTENT_REFUSED: (
        "the provider refuses the content",
        "A filter of the provider's refuses to answer this conversation.",
        "A content-policy error, or answers that end with a refusal or a content filter.",
        "Look at what is asked; another model or account may be allowed to answer",
        "hawk transcript {uuid}",
        Who.PROVIDER,
    ),
    Cause.MALFORMED_RESPONSE: (
        "the provider's answers can't be read",
        "The provider answers 200 with something that is not the JSON that its protocol promises; the client fails, or retries.",
        "Answers of status 200 whose body or events can't be parsed.",
        "Tell the provider; check the base URL (a login page answers 200 too)",
        "hawk probe {model} --job {job}",
        Who.PROVIDER,
    ),
    Cause.EMPTY_OUTPUT: (
        "the model answers nothing",
        "Answers come, of status 200, with no text and no call of a tool. An agent may ask again and again.",
        "Answers without output tokens, one after the other.",
        "Look at one transcript; stop and resume: what has ended is kept",
        "hawk transcript {uuid}",
        Who.PROVIDER,
    ),
    Cause.CONNECT_REFUSED: (
        "nobody listens at the provider's address",
        "The connection is refused: the server is not running, or the address or port is wrong.",
        "The middleman's connection is refused or reset before anything is sent.",
        "Start the server, or correct its base URL",
        "hawk probe {model} --job {job}",
        Who.OPERATOR,
    ),
    Cause.DNS_OR_TLS: (
        "the provider's name or certificate is wrong",
        "The provider's host name has no address, or its certificate is not accepted: no request gets as far as being sent.",
        "The middleman's connection fails while the name is resolved or the certificate is checked.",
        "Check the base URL, the network's DNS and the certificate",
        "hawk probe {model} --job {job}",
        Who.OPERATOR,
    ),
    Cause.BLACK_HOLE: (
        "the provider takes requests and never answers",
        "Requests are accepted, and not one byte comes back. Nothing counts as an error, so no counter of retries shows it.",
        "Open requests without a first byte for far longer than this model takes, with a provider that does not answer a free question either; "
        "while that can't be told from a long generation, it is only information.",
        "Probe the model; if it does not answer, pause it or cancel the calls: they are made again",
        "hawk probe {model} --job {job}",
        Who.PROVIDER,
    ),
    Cause.STREAM_STALLED: (
        "answers stop half-way",
        "A stream began and then nothing more came; the connection stays open.",
        "Open requests whose last byte is long ago, after a first one.",
        "Cancel the calls: they are made again; a shorter idle deadline in the middleman's settings ends them by itself",
        "hawk probe {model} --job {job}",
        Who.PROVIDER,
    ),
    Cause.SLOW_GENERATION: (
        "long generations",
        "The model takes long, and what it writes keeps coming (or it is within what this model takes).",
        "Open requests whose bytes keep coming, or whose age is usual for the model.",
        "Nothing: it progresses",
        "hawk watch {job}",
        Who.WAIT,
    ),
    Cause.CLIENT_TIMEOUT_TOO_SHORT: (
        "a client's time-out is too short",
        "Calls die at the same age every time, on our side: the client gives up before the model has answered, and asks again, for nothing.",
        "Several requests that the client left at nearly the same age, while the provider had not failed.",
        "Raise the time-out of a call (attempt_timeout, timeout or the client's own), or stream",
        "hawk timeline {uuid}",
        Who.AUTHOR,
    ),
}

_MIDDLEMAN: dict[Cause, tuple[str, str, str, str, str, Who]] = {
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

_RUNNER: dict[Cause, tuple[str, str, str, str, str, Who]] = {
    Cause.LOOP_BLOCKED: (
        "code blocks the worker's event loop",
        "One synchronous call runs and nothing else does: all attempts of the worker stand still, and no time-out can fire.",
        "The recorder's thread, which does not need the loop, says since when and at which line.",
        "Make the call asynchronous or run it in a thread (asyncio.to_thread); meanwhile restart the worker",
        "hawk stacktrace {job}",
        Who.AUTHOR,
    ),
    Cause.AWAIT_NEVER_RESOLVED: (
        "code awaits what never comes",
        "The attempt's own code waits for an event, a lock or a future that nobody sets. No call is in flight and no timer runs.",
        "The await chain of the attempt, the same for long, with no model call, tool call or timer below it.",
        "See the line; the attempt can be scored or run again",
        "hawk stacktrace {job} --sample {uuid}",
        Who.AUTHOR,
    ),
    Cause.CPU_STARVED: (
        "too little CPU",
        "The worker's process is starved or fully busy: everything is late, and time-outs fire that should not.",
        "The worker uses a whole core, or the machine has more to run than cores, and the loop is late again and again.",
        "Fewer attempts at once, less other work on the machine, or more cores",
        "hawk status {job}",
        Who.OPERATOR,
    ),
    Cause.MEMORY_NEAR_LIMIT: (
        "a worker's memory is near its limit",
        "The next allocation may be the last: the kernel kills what goes over the limit.",
        "Memory in use against the limit that applies.",
        "Raise the memory limit, or run fewer attempts at once",
        "hawk status {job}",
        Who.OPERATOR,
    ),
    Cause.RUNNER_OOM_KILLED: (
        "the runner ran out of memory",
        "The kernel killed a process of the runner because no memory was left for it.",
        "The kernel's count of such kills at the worker's end.",
        "Raise the runner's memory limit, or run fewer attempts at once",
        "hawk status {job}",
        Who.OPERATOR,
    ),
    Cause.CRASHED: (
        "the runner crashed",
        "A worker or the supervisor ended with an error of its own; it is started again a bounded number of times.",
        "How the process ended, and the last lines it wrote.",
        "See its log; what has ended is kept",
        "hawk logs {job} --level error",
        Who.AUTHOR,
    ),
    Cause.KILLED: (
        "the runner was killed",
        "A process of the runner was ended by a signal, from outside.",
        "The signal that ended it, without a sign of lack of memory.",
        "Resume: what has ended is kept",
        "hawk eval-set resume {job}",
        Who.OPERATOR,
    ),
    Cause.DISK_FULL: (
        "the disk is full",
        "The file system of the run directory or of temporary files has no room left; nothing that ends can be written.",
        "Errors of writing, and the free space itself.",
        "Free space: what waits to be written is written then",
        "hawk doctor",
        Who.OPERATOR,
    ),
    Cause.LOG_STORE_UNWRITABLE: (
        "results can't be written",
        "The log directory or bucket refuses writes: permissions, a read-only mount, expired credentials.",
        "Errors of writing other than lack of space.",
        "Restore write access; finished attempts wait in the worker's buffer until then",
        "hawk logs {job} --level error",
        Who.OPERATOR,
    ),
    Cause.DATABASE_LOCKED: (
        "a database is locked",
        "Another process holds the lock of a SQLite database (the realtime buffer, the index) for long; often it lies on a network file system.",
        "`database is locked` in errors and output.",
        "Put HAWK_HOME and the run directories on a local disk; close what reads the database",
        "hawk logs {job} --level warning",
        Who.OPERATOR,
    ),
    Cause.CONTROL_SOCKET_LOST: (
        "a worker can't be asked",
        "A worker lives and works, but its control socket is gone: what it does is known from its log alone, and it can't be told to stop politely.",
        "A fresh heartbeat, and nobody at the socket.",
        "Nothing for the results; a stop will end it by a signal. Look for what deletes files in the temporary directory",
        "hawk stacktrace {job}",
        Who.OPERATOR,
    ),
    Cause.DATASET_LOADING: (
        "tasks are being loaded",
        "The tasks' own code runs before any attempt: it loads or downloads a dataset.",
        "The job has no plan yet, and the line that the loading process is at.",
        "Wait if it moves; else see the line",
        "hawk logs {job}",
        Who.AUTHOR,
    ),
    Cause.ENVIRONMENT_INSTALL: (
        "packages are being installed",
        "The eval set's packages are being installed, or can't be.",
        "The runner's own steps, and the installer's output.",
        "Wait, or correct the package that is named",
        "hawk logs {job}",
        Who.OPERATOR,
    ),
    Cause.IMPORT_ERROR: (
        "a module can't be imported",
        "The eval set's code needs a module that is not there, or that fails as it is imported.",
        "The error of loading the tasks.",
        "Add the package to `packages:` (or mend the module) and submit again",
        "hawk logs {job}",
        Who.AUTHOR,
    ),
    Cause.CONFIG_ERROR: (
        "the eval set is wrong",
        "The tasks can't be made from what the eval set says: a name, an argument, a file, a missing key.",
        "The error of loading the tasks.",
        "Correct what the message names and submit again",
        "hawk logs {job}",
        Who.AUTHOR,
    ),
}

_SANDBOX: dict[Cause, tuple[str, str, str, str, str, Who]] = {
    Cause.IMAGE_PULL: (
        "the sandbox's image can't be had",
        "The image does not exist, the registry refuses, or it is still being fetched.",
        "The engine's or Docker's own words while a sandbox is made.",
        "Check name, tag and the registry's credentials",
        "hawk logs {job} --level warning",
        Who.OPERATOR,
    ),
    Cause.CREATE_FAILED: (
        "sandboxes can't be made",
        "Making a sandbox fails each time, so no attempt begins.",
        "The error with which attempts end before their agent runs.",
        "Do what the message says; `hawk doctor` checks the machine",
        "hawk doctor",
        Who.OPERATOR,
    ),
    Cause.CRASH_LOOP: (
        "a sandbox ends again and again",
        "The sandbox's main process ends soon after its start, and is started again.",
        "Repeated ends of the same sandbox.",
        "See why its command ends: run the image by hand",
        "hawk logs {job} --level warning",
        Who.AUTHOR,
    ),
    Cause.UNSCHEDULABLE: (
        "there is no room for the sandbox",
        "The cluster has no node with room for the pod.",
        "The scheduler's own message, past a grace of three minutes.",
        "Wait for the autoscaler, or ask for less",
        "hawk status {job}",
        Who.OPERATOR,
    ),
    Cause.START_TIMEOUT: (
        "sandboxes don't get ready",
        "The sandbox is being made for far longer than usual: a setup step or a health check that does not end.",
        "Attempts in their beginning for long, and what is still being done.",
        "See which step does not end",
        "hawk trace {job}",
        Who.AUTHOR,
    ),
    Cause.TOOL_HUNG: (
        "a command does not end",
        "A tool call's command runs, and does nothing: it waits for input, for a lock, for the network, or sleeps.",
        "Its process uses no CPU and moves no bytes, what the kernel says it sleeps in, and its own deadline, if any. "
        "A command that works or is within its deadline is progress.",
        "Cancel the call: the agent is told and goes on; give tools a time-out",
        "hawk fix {job} {n}",
        Who.OPERATOR,
    ),
    Cause.EXEC_LOST: (
        "the sandbox was restarted under a command",
        "The sandbox ended or was replaced while a command ran in it; the command will never answer.",
        "The sandbox that the attempt began with is not the one there now, or it is gone.",
        "Nothing: the attempt errors and is run again",
        "hawk logs {job} --sample {uuid}",
        Who.WAIT,
    ),
    Cause.SANDBOX_OOM_KILLED: (
        "commands run out of memory in the sandbox",
        "The kernel kills what goes over the sandbox's memory limit; the agent sees a command that was killed.",
        "The kernel's count for the sandbox.",
        "Raise memory in the sandbox's limits, if it was not meant",
        "hawk sandbox shell {uuid}",
        Who.AUTHOR,
    ),
    Cause.SANDBOX_DISK_FULL: (
        "the sandbox's disk is full",
        "The sandbox has written as much as its limit allows; what comes after fails.",
        "The sandbox's own count.",
        "Raise disk in the sandbox's limits, if it was not meant",
        "hawk sandbox shell {uuid}",
        Who.AUTHOR,
    ),
    Cause.NETWORK_DENIED: (
        "the sandbox has no way to the network",
        "Commands try to reach the network, which the sandbox does not allow.",
        "Their errors, and the sandbox's network setting.",
        "Allow what is needed in the sandbox's network setting, or bring it into the image",
        "hawk transcript {uuid}",
        Who.AUTHOR,
    ),
    Cause.LIMITER_STARVED: (
        "a few calls hold all places",
        "Attempts wait for a place at a limiter (commands at once, sandboxes at once), and those who hold the places don't end.",
        "Await chains that end at a limiter, and the age of what holds it.",
        "End what holds the places; raise the limit (max_subprocesses, max_sandboxes)",
        "hawk trace {job}",
        Who.OPERATOR,
    ),
}

_ATTEMPT: dict[Cause, tuple[str, str, str, str, str, Who]] = {
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

_SCHEDULER: dict[Cause, tuple[str, str, str, str, str, Who]] = {
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

_HEALTHY: dict[Cause, tuple[str, str, str, str, str, Who]] = {
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

ABOUT: dict[Cause, About] = {
    cause: About(layer, *texts, cause.word)
    for layer, table in (
        (Layer.PROVIDER, _PROVIDER),
        (Layer.MIDDLEMAN, _MIDDLEMAN),
        (Layer.RUNNER, _RUNNER),
        (Layer.SANDBOX, _SANDBOX),
        (Layer.ATTEMPT, _ATTEMPT),
        (Layer.SCHEDULER, _SCHEDULER),
        (Layer.HEALTHY, _HEALTHY),
    )
    for cause, texts in table.items()
}
