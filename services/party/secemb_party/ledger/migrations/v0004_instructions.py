"""What operators have told a server to do."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0004"
down_revision = "0003"


def upgrade(op: Operations) -> None:
    """Make the table of instructions."""
    op.create_table(
        "instructions",
        sa.Column("task_id", sa.LargeBinary, nullable=False),
        sa.Column("what", sa.String(16), nullable=False),
        sa.Column("round_id", sa.LargeBinary),
        sa.Column("by", sa.String(100), nullable=False),
        sa.Column("reason", sa.String(500), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("task_id", "what", name="pk_instructions"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_instructions_task_id"),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.round_id"], name="fk_instructions_round_id"),
    )
