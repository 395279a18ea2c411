"""Workers and producers for `jobs`, the job queue in Postgres.

    worker = Worker(dsn)

    @worker.kind("email.send", timeout=30)
    async def send(job: Job[EmailArgs]) -> dict: ...

    if __name__ == "__main__":  # so that tests and web applications can import the worker
        worker.run()
"""

from ._failures import Hook
from ._sync import Change
from ._version import __version__
from .cells import AsyncCells, Cells
from .job import Job
from .outcomes import Cancel, Discard, Outcome, RetryIn, Snooze
from .produce import CertainJob, Inserted, Kind, NewJob, Options, Result, Unique
from .produce import insert, insert_many, insert_middleware, wait_for
from .worker import Middleware, Worker

__all__ = ["AsyncCells", "Cancel", "Cells", "CertainJob", "Change", "Discard", "Hook", "Inserted", "Job", "Kind", "Middleware", "NewJob"]
__all__ += ["Options", "Outcome", "Result", "RetryIn", "Snooze", "Unique", "Worker", "__version__", "insert", "insert_many"]
__all__ += ["insert_middleware", "wait_for"]
