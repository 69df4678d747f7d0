"""Enrolment tokens that expire, and several of them for one device, one after the other."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0003"
down_revision = "0002"


def upgrade(op: Operations) -> None:
    """Let each token name its device; until now a device had one token, and was known by its hash."""
    with op.batch_alter_table("tokens") as tokens:
        tokens.drop_constraint("uq_tokens_name", type_="unique")
        tokens.add_column(sa.Column("device", sa.LargeBinary))
        tokens.add_column(sa.Column("generation", sa.BigInteger, nullable=False, server_default="0"))
        tokens.add_column(sa.Column("expires_at", sa.Double))
    op.execute("UPDATE tokens SET device = token_hash")
    with op.batch_alter_table("tokens") as tokens:
        tokens.alter_column("device", existing_type=sa.LargeBinary, nullable=False)
        tokens.alter_column("generation", existing_type=sa.BigInteger, existing_nullable=False, server_default=None)
        tokens.create_unique_constraint("uq_tokens_name_generation", ["name", "generation"])
