"""Jobs of Oban, made by the statements that its package for Python brings and runs.

DATABASE_URL says where. The package itself wants a newer Python than Debian has; its statements do
not.
"""

import importlib.util
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

package = Path(importlib.util.find_spec("oban").origin).parent
statement = lambda name: (package / "queries" / f"{name}.sql").read_text()

with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, row_factory=dict_row) as connection:

    def insert(worker, n, state="available", **options):
        job = {"inserted_at": None, "max_attempts": 20, "meta": {}, "priority": 0, "queue": "default", "scheduled_at": None, "tags": []}
        job |= options | {"worker": worker, "state": state, "args": Jsonb({"n": n})}
        job["meta"] = Jsonb(job["meta"])
        return connection.execute(statement("insert_job"), job).fetchone()["id"]

    def fetch(queue):
        return connection.execute(statement("fetch_jobs"), {"queue": queue, "demand": 1, "attempted_by": ["node"]}).fetchone()

    connection.execute(statement("install"), prepare=False)
    insert("App.Mail", 1)
    insert("App.Mail", 2, priority=9)
    insert("App.Mail", 3, priority=2, tags=["urgent", "monthly"], max_attempts=5, queue="slow", meta={"tenant": "acme"})
    insert("App.Mail", 4, scheduled_at=datetime(2900, 1, 1))
    insert("App.Mail", 5, queue="failing", max_attempts=6)
    failed = fetch("failing")
    connection.execute(
        statement("ack_job"),
        {"id": failed["id"], "attempted_at": failed["attempted_at"], "state": "retryable", "attempt_change": None, "schedule_in": 600, "meta": None,
         "error": Jsonb({"attempt": 1, "at": datetime.now(timezone.utc).isoformat(), "error": "it broke"})},
    )
    insert("App.Mail", 6, queue="running", max_attempts=3)
    fetch("running")
    insert("App.Mail", 7)  # a transaction has it locked while jobs are moved
    connection.execute(statement("cancel_many_jobs"), {"ids": [insert("App.Mail", 8)]})
    insert("App.Mail", 9, state="suspended")
    # Two of one key, which its window of a minute let in one after the other, and one that has a
    # successor here.
    insert("App.Charge", 10, scheduled_at=None, inserted_at=datetime.now(timezone.utc).replace(tzinfo=None) - timedelta(minutes=5))
    insert("App.Charge", 10)
    insert("App.Charge", 11)
