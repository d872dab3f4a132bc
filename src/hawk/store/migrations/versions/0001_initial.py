"""Jobs, evals, samples, scores."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the four tables."""
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("job_type", sa.Text(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("created_by", sa.Text()),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("finished_at", _TIME),
        sa.Column("deleted_at", _TIME),
        sa.PrimaryKeyConstraint("job_id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_created_at", "jobs", ["created_at"])
    op.create_index("ix_jobs_finished_at", "jobs", ["finished_at"])
    op.create_table(
        "evals",
        sa.Column("eval_id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("task_name", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("total_samples", sa.Integer(), nullable=False),
        sa.Column("completed_samples", sa.Integer(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("started_at", _TIME),
        sa.Column("completed_at", _TIME),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("eval_id", name="pk_evals"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name="fk_evals_job_id", ondelete="CASCADE"),
    )
    op.create_index("ix_evals_job_id", "evals", ["job_id"])
    _create_samples()
    op.create_table(
        "scores",
        sa.Column("sample_pk", sa.Integer(), nullable=False),
        sa.Column("scorer", sa.Text(), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.Column("value_float", sa.Double()),
        sa.Column("value_nonfinite", sa.Text()),
        sa.PrimaryKeyConstraint("sample_pk", "scorer", name="pk_scores"),
        sa.ForeignKeyConstraint(
            ["sample_pk"], ["samples.pk"], name="fk_scores_sample_pk", ondelete="CASCADE"
        ),
    )


def _create_samples() -> None:
    op.create_table(
        "samples",
        sa.Column("pk", sa.Integer(), nullable=False, autoincrement=True),
        sa.Column("eval_id", sa.Text(), nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("sample_id", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("limit", sa.Text()),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("started_at", _TIME),
        sa.Column("completed_at", _TIME),
        sa.Column("total_time", sa.Double()),
        sa.Column("working_time", sa.Double()),
        sa.Column("input_tokens", sa.BigInteger()),
        sa.Column("output_tokens", sa.BigInteger()),
        sa.Column("total_tokens", sa.BigInteger()),
        sa.Column("message_count", sa.Integer()),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("search_text", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("pk", name="pk_samples"),
        sa.UniqueConstraint("eval_id", "sample_id", "epoch", name="uq_samples_eval_id_sample_id_epoch"),
        sa.ForeignKeyConstraint(
            ["eval_id"], ["evals.eval_id"], name="fk_samples_eval_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_samples_uuid", "samples", ["uuid"])
    op.create_index("ix_samples_status", "samples", ["status"])
    op.create_index("ix_samples_completed_at", "samples", ["completed_at"])
