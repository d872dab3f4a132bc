"""Attempts, for predicting later ones."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table. It fills as jobs end; `hawk server reindex` fills it from all that have."""
    op.create_table(
        "attempts",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("pair", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("sample", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text()),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.Double()),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name="fk_attempts_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "pair", "attempt", name="pk_attempts"),
    )
    op.create_index("ix_attempts_model_ended_at", "attempts", ["model", "ended_at"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("attempts")
