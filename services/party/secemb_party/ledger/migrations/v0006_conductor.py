"""The epoch of the conductor: with several processes, only the newest one that conducts may write as such."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0006"
down_revision = "0005"


def upgrade(op: Operations) -> None:
    """Make the table of the epoch."""
    op.create_table(
        "conductor",
        sa.Column("name", sa.String(16), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_conductor"),
    )
