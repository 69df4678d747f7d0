"""Several tasks at a time: whether an operator runs each, and which task events and actions are about."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0007"
down_revision = "0006"


def upgrade(op: Operations) -> None:
    """Add the columns. Until now a server ran one task at a time: the newest, which the latest events are about."""
    op.add_column("tasks", sa.Column("state", sa.String(16)))
    op.add_column("events", sa.Column("task_id", sa.LargeBinary))
    op.add_column("actions", sa.Column("task_id", sa.LargeBinary))
    op.create_index("ix_events_task", "events", ["task_id", "event_id"])
    op.execute(
        "UPDATE events SET task_id = (SELECT task_id FROM tasks ORDER BY added_at DESC, task_id DESC LIMIT 1)"
        " WHERE kind <> 'restored'"
    )
