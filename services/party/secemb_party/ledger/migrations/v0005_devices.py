"""What became of each device's sessions, devices that are suspended, and sessions that came too late."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0005"
down_revision = "0004"


def upgrade(op: Operations) -> None:
    """Make the table of devices, with a row for each that has a token."""
    op.create_table(
        "devices",
        sa.Column("device", sa.LargeBinary, nullable=False),
        sa.Column("joined", sa.BigInteger, nullable=False),
        sa.Column("completed", sa.BigInteger, nullable=False),
        sa.Column("refused", sa.BigInteger, nullable=False),
        sa.Column("rejected", sa.BigInteger, nullable=False),
        sa.Column("silent", sa.BigInteger, nullable=False),
        sa.Column("joined_at", sa.Double),
        sa.Column("problem", sa.String(64)),
        sa.Column("problem_at", sa.Double),
        sa.Column("suspended_at", sa.Double),
        sa.PrimaryKeyConstraint("device", name="pk_devices"),
    )
    op.execute(
        "INSERT INTO devices (device, joined, completed, refused, rejected, silent)"
        " SELECT DISTINCT device, 0, 0, 0, 0, 0 FROM tokens"
    )
    op.add_column("sessions", sa.Column("late_at", sa.Double))
