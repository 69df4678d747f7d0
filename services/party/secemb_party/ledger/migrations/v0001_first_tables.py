"""The first tables."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0001"
down_revision = None


def upgrade(op: Operations) -> None:
    """Make every table of version 1."""
    _make_tasks(op)
    _make_rounds(op)
    _make_sessions(op)
    _make_operator_tables(op)


def _make_tasks(op: Operations) -> None:
    op.create_table(
        "tasks",
        sa.Column("task_id", sa.LargeBinary, nullable=False),
        sa.Column("spec", sa.LargeBinary, nullable=False),
        sa.Column("added_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("task_id", name="pk_tasks"),
    )
    op.create_table(
        "model_versions",
        sa.Column("task_id", sa.LargeBinary, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("recorded_at", sa.Double, nullable=False),
        sa.Column("published_at", sa.Double),
        sa.PrimaryKeyConstraint("task_id", "version", name="pk_model_versions"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_model_versions_task_id"),
    )
    op.create_table(
        "rollbacks",
        sa.Column("task_id", sa.LargeBinary, nullable=False),
        sa.Column("seen", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("source", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("wished_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.Column("made", sa.BigInteger),
        sa.Column("reason", sa.String(500)),
        sa.PrimaryKeyConstraint("task_id", "seen", "source", name="pk_rollbacks"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_rollbacks_task_id"),
    )
    running = sa.text("ended_at IS NULL")
    op.create_index(
        "ix_rollbacks_open", "rollbacks", ["task_id"], unique=True, sqlite_where=running, postgresql_where=running
    )


def _make_rounds(op: Operations) -> None:
    op.create_table(
        "rounds",
        sa.Column("round_id", sa.LargeBinary, nullable=False),
        sa.Column("task_id", sa.LargeBinary, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("model_version", sa.BigInteger, nullable=False),
        sa.Column("spec", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("opened_at", sa.Double, nullable=False),
        sa.Column("join_until", sa.Double, nullable=False),
        sa.Column("upload_until", sa.Double, nullable=False),
        sa.Column("sealing_at", sa.Double),
        sa.Column("sealed_at", sa.Double),
        sa.Column("shared_at", sa.Double),
        sa.Column("reconstructed_at", sa.Double),
        sa.Column("ended_at", sa.Double),
        sa.Column("sealed_sessions", sa.LargeBinary),
        sa.Column("list_digest", sa.LargeBinary),
        sa.Column("share_digest", sa.LargeBinary),
        sa.Column("next_version", sa.BigInteger),
        sa.Column("reason", sa.String(500)),
        sa.PrimaryKeyConstraint("round_id", name="pk_rounds"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_rounds_task_id"),
        sa.UniqueConstraint("task_id", "number", name="uq_rounds_task_id_number"),
    )
    running = sa.text("ended_at IS NULL")
    op.create_index(
        "ix_rounds_running", "rounds", ["task_id", "number"], sqlite_where=running, postgresql_where=running
    )


def _make_sessions(op: Operations) -> None:
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.LargeBinary, nullable=False),
        sa.Column("round_id", sa.LargeBinary, nullable=False),
        sa.Column("device", sa.LargeBinary),
        sa.Column("admitted_at", sa.Double, nullable=False),
        sa.Column("keys_digest", sa.LargeBinary),
        sa.Column("keys_public", sa.LargeBinary),
        sa.Column("keys_at", sa.Double),
        sa.Column("update_digest", sa.LargeBinary),
        sa.Column("update_public", sa.LargeBinary),
        sa.Column("update_at", sa.Double),
        sa.PrimaryKeyConstraint("session_id", name="pk_sessions"),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.round_id"], name="fk_sessions_round_id"),
        sa.UniqueConstraint("round_id", "device", name="uq_sessions_round_id_device"),
    )
    op.create_table(
        "bodies",
        sa.Column("session_id", sa.LargeBinary, nullable=False),
        sa.Column("part", sa.String(8), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("session_id", "part", name="pk_bodies"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.session_id"], name="fk_bodies_session_id"),
    )


def _make_operator_tables(op: Operations) -> None:
    op.create_table(
        "tokens",
        sa.Column("token_hash", sa.LargeBinary, nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("revoked_at", sa.Double),
        sa.PrimaryKeyConstraint("token_hash", name="pk_tokens"),
        sa.UniqueConstraint("name", name="uq_tokens_name"),
    )
    op.create_table(
        "events",
        sa.Column("event_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("event_id", name="pk_events"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "answers",
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.Column("stored_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_answers"),
    )
