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
from .job import Job
from .outcomes import Cancel, Discard, Outcome, RetryIn, Snooze
from .produce import Inserted, Kind, NewJob, Options, Result, Unique, insert, insert_many, insert_middleware, wait_for
from .worker import Middleware, Worker

__all__ = ["Cancel", "Change", "Discard", "Hook", "Inserted", "Job", "Kind", "Middleware", "NewJob", "Options"]
__all__ += ["Outcome", "Result", "RetryIn", "Snooze", "Unique", "Worker", "__version__", "insert", "insert_many"]
__all__ += ["insert_middleware", "wait_for"]
