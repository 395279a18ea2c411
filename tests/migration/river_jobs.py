"""Jobs of River, made by its own client for Python. DATABASE_URL says where."""

import json
import os
from datetime import datetime, timezone

import riverqueue
import sqlalchemy
from riverqueue.driver import riversqlalchemy


class Args:
    def __init__(self, kind, **args):
        self.kind = kind
        self.args = args

    def to_json(self):
        return json.dumps(self.args)


with sqlalchemy.create_engine(os.environ["DATABASE_URL"]).begin() as connection:
    client = riverqueue.Client(riversqlalchemy.Driver(connection))

    def insert(kind, n, **options):
        args = {"n": n, "account": 7} if kind == "charge" else {"n": n}
        client.insert(Args(kind, **args), insert_opts=riverqueue.InsertOpts(**options))

    insert("mail", 1)
    insert("mail", 2, priority=4)
    insert("mail", 3, priority=2, tags=["urgent", "monthly"], max_attempts=5, queue="slow")
    insert("mail", 4, scheduled_at=datetime(2900, 1, 1, tzinfo=timezone.utc))
    for n in range(5, 10):
        insert("mail", n)
    insert("charge", 10)
