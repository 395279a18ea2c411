"""Django: handlers in the modules `jobs` and `tasks` of your apps, the command `jobs_worker`, and a
backend of `django.tasks`.

    INSTALLED_APPS = [.., "postgres_jobs.django"]
    JOBS_WORKER = {"queues": ["default", "mail"]}     # options of a Worker

    from postgres_jobs.django import worker     # in shop/jobs.py

    @worker.kind("email.send")
    def send(job): ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
from django.conf import settings
from django.db import close_old_connections, connections
from psycopg.conninfo import make_conninfo

from ..worker import Worker

__all__ = ["DjangoWorker", "dsn", "worker"]


class DjangoWorker(Worker):
    """A worker whose blocking handlers begin without Django's old connections: threads are reused
    with their connections, even broken ones."""

    def _call_in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        close_old_connections()
        try:
            return function(*args)
        finally:
            close_old_connections()


def dsn(database: str = "default") -> str:
    """The connection string of a database of the settings."""
    given = connections[database].get_connection_params()
    names = {one.keyword.decode() for one in psycopg.pq.Conninfo.get_defaults()} - {"client_encoding"}
    return make_conninfo(**{name: value for name, value in given.items() if name in names and value is not None})


worker = DjangoWorker(**getattr(settings, "JOBS_WORKER", {}))
"""The worker of the command `jobs_worker`."""
