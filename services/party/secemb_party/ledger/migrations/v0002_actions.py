"""What operators did."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0002"
down_revision = "0001"


def upgrade(op: Operations) -> None:
    """Make the table of operators' actions."""
    op.create_table(
        "actions",
        sa.Column("action_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("by", sa.String(100), nullable=False),
        sa.Column("what", sa.String(64), nullable=False),
        sa.Column("reason", sa.String(500)),
        sa.Column("data", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("action_id", name="pk_actions"),
        sqlite_autoincrement=True,
    )
