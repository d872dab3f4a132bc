"""The words of diagnosis: layers, causes, severities, who can act. Each is spelt here and nowhere else."""

from __future__ import annotations

from enum import StrEnum


class Layer(StrEnum):
    """Where a cause lies; in the order in which a call passes through them, from the far end."""

    PROVIDER = "provider"
    MIDDLEMAN = "middleman"
    RUNNER = "runner"
    SANDBOX = "sandbox"
    ATTEMPT = "attempt"
    SCHEDULER = "scheduler"
    HEALTHY = "healthy"


class Severity(StrEnum):
    """How bad it is for what it holds."""

    INFO = "info"  # it progresses
    WARNING = "warning"  # it is slowed
    STUCK = "stuck"  # it won't go on by itself
    FATAL = "fatal"  # it is over, unless somebody acts

    @property
    def rank(self) -> int:
        """Higher is worse."""
        return _RANKS[self]

    @property
    def blocks(self) -> bool:
        """Whether what it holds does not go on by itself."""
        return self in (Severity.STUCK, Severity.FATAL)


_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class Who(StrEnum):
    """Who can change it."""

    WAIT = "wait"  # nobody need: it ends by itself
    OPERATOR = "operator"  # who runs the eval set
    AUTHOR = "author"  # who wrote the task, the agent or the scorer
    PROVIDER = "provider"  # the provider of the model


class Scope(StrEnum):
    """What a verdict speaks of."""

    JOB = "job"
    TASK = "task"
    ATTEMPT = "attempt"


class Source(StrEnum):
    """Where evidence comes from. One that is missing is said; it lowers what can be concluded."""

    CONTROL = "control socket"
    RECORDER = "recorder"
    TRACE = "trace"
    MIDDLEMAN = "middleman"
    SPANS = "spans"
    ENGINE = "engine"
    JOURNAL = "journal"
    LOGS = "logs"
    SANDBOX = "sandbox"
    HOST = "host"
    PLAN = "plan"
    HISTORY = "history"


class Cause(StrEnum):
    """What a verdict can be. `about.ABOUT` says of each what it means and what to do."""

    # provider
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    AUTH_REJECTED = "auth_rejected"
    QUOTA_EXHAUSTED = "quota_exhausted"
    MODEL_NOT_FOUND = "model_not_found"
    CONTEXT_OVERFLOW = "context_overflow"
    INVALID_REQUEST = "invalid_request"
    CONTENT_REFUSED = "content_refused"
    MALFORMED_RESPONSE = "malformed_response"
    EMPTY_OUTPUT = "empty_output"
    CONNECT_REFUSED = "connect_refused"
    DNS_OR_TLS = "dns_or_tls"
    BLACK_HOLE = "black_hole"
    STREAM_STALLED = "stream_stalled"
    SLOW_GENERATION = "slow_generation"
    CLIENT_TIMEOUT_TOO_SHORT = "client_timeout_too_short"
    # middleman
    MIDDLEMAN_DOWN = "down"
    TOKEN_EXPIRED = "token_expired"  # noqa: S105
    TOKEN_REVOKED = "token_revoked"  # noqa: S105
    MODEL_NOT_PERMITTED = "model_not_permitted"
    QUEUE_WAIT = "queue_wait"
    BUDGET_EXHAUSTED = "budget_exhausted"
    BREAKER_OPEN = "breaker_open"
    REPLAY_MISS = "replay_miss"
    PROXY_FAULT = "proxy_fault"
    # runner
    LOOP_BLOCKED = "loop_blocked"
    AWAIT_NEVER_RESOLVED = "await_never_resolved"
    CPU_STARVED = "cpu_starved"
    MEMORY_NEAR_LIMIT = "memory_near_limit"
    RUNNER_OOM_KILLED = "oom_killed"
    CRASHED = "crashed"
    KILLED = "killed"
    DISK_FULL = "disk_full"
    LOG_STORE_UNWRITABLE = "log_store_unwritable"
    DATABASE_LOCKED = "database_locked"
    CONTROL_SOCKET_LOST = "control_socket_lost"
    DATASET_LOADING = "dataset_loading"
    ENVIRONMENT_INSTALL = "environment_install"
    IMPORT_ERROR = "import_error"
    CONFIG_ERROR = "config_error"
    # sandbox
    IMAGE_PULL = "image_pull"
    CREATE_FAILED = "create_failed"
    CRASH_LOOP = "crash_loop"
    UNSCHEDULABLE = "unschedulable"
    START_TIMEOUT = "start_timeout"
    TOOL_HUNG = "tool_hung"
    EXEC_LOST = "exec_lost"
    SANDBOX_OOM_KILLED = "sandbox.oom_killed"
    SANDBOX_DISK_FULL = "sandbox.disk_full"
    NETWORK_DENIED = "network_denied"
    LIMITER_STARVED = "limiter_starved"
    # attempt
    RETRY_LOOP = "retry_loop"
    LIMIT_HIT = "limit_hit"
    AGENT_LOOPING = "agent_looping"
    SCORER_HUNG = "scorer_hung"
    SCORER_ERROR = "scorer_error"
    SETUP_FAILED = "setup_failed"
    AWAITING_APPROVAL = "awaiting_approval"
    AWAITING_INPUT = "awaiting_input"
    # scheduler
    NO_SLOT = "no_slot"
    PAUSED = "paused"
    QUEUED = "queued"
    STOPPING = "stopping"
    # healthy
    PROGRESSING = "progressing"
    FINISHING = "finishing"
    LONG_TAIL = "long_tail"

    @property
    def word(self) -> str:
        """As the contract and verdicts spell it: the layer tells the two `oom_killed` and `disk_full` apart."""
        return self.value.rpartition(".")[2]
