"""A backend of `django.tasks`, or of the package `django-tasks` before Django 6.

    TASKS = {"default": {"BACKEND": "postgres_jobs.django.backend.JobsBackend"}}

OPTIONS can have `database`, an alias of the settings, and options of `insert`, such as
`max_attempts`. A task is enqueued in the transaction of Django's connection.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import connections
from django.utils.module_loading import import_string

try:
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

from ..job import Job
from ..produce import insert
from . import worker

_STATUS = {"running": "RUNNING", "completed": "SUCCESSFUL", "cancelled": "FAILED", "discarded": "FAILED"}
_FOUND = """
    select j.kind, j.queue, cast(j.state as text), cast(j.args as text), j.priority, j.attempt,
           j.created_at, j.attempted_at, j.finalized_at, cast(r.output as text),
           (select cast(coalesce(json_agg(json_build_array(e.details->>'type', coalesce(e.details->>'trace', e.error))
                   order by e.attempt), '[]') as text) from jobs.errors e where e.job_id = j.id)
      from jobs.jobs j, jobs.results(array[j.id]) r where j.id = %s"""


class JobsTask(Task):
    """A task that the worker of this program can run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        handler: Any = _run_async if inspect.iscoroutinefunction(self.func) else _run
        if self.module_path not in worker.handlers:
            worker.kind(self.module_path)(handler)


@contextmanager
def _running(job: Job[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """The task of the job, and its positional arguments."""
    task = import_string(job.kind)
    backend = task.get_backend()
    times = {"enqueued_at": job.created_at, "started_at": job.attempted_at, "last_attempted_at": job.attempted_at}
    result = backend.result(task, str(job.id), job.args, "RUNNING", job.attempt, **times)
    task_started.send(type(backend), task_result=result)
    status = "FAILED"
    try:
        yield task, [TaskContext(task_result=result)] * task.takes_context + job.args["args"]
        status = "SUCCESSFUL"
    finally:
        object.__setattr__(result, "status", TaskResultStatus[status])
        object.__setattr__(result, "finished_at", datetime.now().astimezone())
        task_finished.send(type(backend), task_result=result)


def _run(job: Job[Any]) -> Any:
    with _running(job) as (task, args):
        return task.call(*args, **job.args["kwargs"])


async def _run_async(job: Job[Any]) -> Any:
    with _running(job) as (task, args):
        return await task.acall(*args, **job.args["kwargs"])


class JobsBackend(BaseTaskBackend):
    task_class = JobsTask
    supports_defer = supports_async_task = supports_get_result = supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.insert_options = dict(self.options)
        self.database = self.insert_options.pop("database", "default")

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        self.validate_task(task)
        options = {**self.insert_options, "queue": task.queue_name, "priority": 1 - task.priority}
        given = {"args": list(args), "kwargs": kwargs}
        if task.run_after:
            options["scheduled_at"] = task.run_after
        job = insert(connections[self.database], task.module_path, given, **options)
        result = self.result(task, str(job.id), given, enqueued_at=datetime.now().astimezone())
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        if not re.fullmatch("[0-9]{1,16}", str(result_id)):
            raise TaskResultDoesNotExist(result_id)
        with connections[self.database].cursor() as cursor:
            cursor.execute(_FOUND, [int(result_id)])
            rows = cursor.fetchall()
        if not rows:
            raise TaskResultDoesNotExist(result_id)
        ((kind, queue, state, args, priority, attempt, created, began, ended, output, errors),) = rows
        try:
            task = import_string(kind)
        except (ImportError, TypeError, ValueError) as error:
            raise TaskResultDoesNotExist(result_id) from error
        if not isinstance(task, Task):
            raise TaskResultDoesNotExist(result_id)
        task = task.using(queue_name=queue, priority=1 - priority)
        times = {"enqueued_at": created, "started_at": began, "last_attempted_at": began, "finished_at": ended}
        given = json.loads(args)
        result = self.result(task, result_id, given, _STATUS.get(state, "READY"), attempt, **times)
        for name, trace in json.loads(errors):
            result.errors.append(TaskError(exception_class_path=_path(name, trace), traceback=trace))
        object.__setattr__(result, "_return_value", json.loads(output or "null"))
        return result

    def result(
        self, task: Any, id: str, given: dict[str, Any], status: str = "READY", attempts: int = 0, **times: Any
    ) -> Any:
        return TaskResult(
            task=task,
            id=id,
            status=TaskResultStatus[status],
            args=given["args"],
            kwargs=given["kwargs"],
            backend=self.alias,
            errors=[],
            worker_ids=[""] * attempts,
            **{"enqueued_at": None, "started_at": None, "last_attempted_at": None, "finished_at": None, **times},
        )


def _path(name: str, trace: str) -> str:
    """The path of an error's class, which its trace has."""
    found = re.findall(rf"^((?:[\w.]+\.)?{re.escape(name)})(?::|$)", trace, re.M) or [name]
    return found[-1] if "." in found[-1] else f"builtins.{found[-1]}"
