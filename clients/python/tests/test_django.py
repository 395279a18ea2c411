"""Django's command and backend, in a project of its own."""

import json
import os
import signal
import subprocess
import sys

import psycopg
import pytest

MANAGE = """
import json, os, sys
import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

parts, queue = conninfo_to_dict(os.environ["DATABASE_URL"]), os.environ["QUEUE"]
names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
database = {"ENGINE": "django.db.backends.postgresql"} | {to: parts[name] for to, name in names.items()}
backend = {"BACKEND": "postgres_jobs.django.backend.JobsBackend", "QUEUES": [queue], "OPTIONS": {"max_attempts": 1}}
settings.configure(
    DATABASES={"default": database}, INSTALLED_APPS=["postgres_jobs.django", "shop"], USE_TZ=True,
    TASKS={"default": backend}, JOBS_WORKER={"queues": [queue]},
)
django.setup()
if sys.argv[1] == "enqueue":
    from django.db import transaction
    from shop import tasks
    with transaction.atomic():
        tasks.add.enqueue(5, 6)
        transaction.set_rollback(True)
    results = [tasks.add.enqueue(1, b=2), tasks.later.using(priority=5).enqueue(), tasks.fails.enqueue()]
    print(json.dumps([one.id for one in results]))
elif sys.argv[1] == "results":
    from shop import tasks
    found = [tasks.add.get_backend().get_result(id) for id in sys.argv[2:]]
    shown = [[one.status, one._return_value, [error.exception_class.__name__ for error in one.errors]] for one in found]
    print(json.dumps(shown))
elif sys.argv[1] == "missing":
    import uuid
    from django.db import connection, transaction
    from postgres_jobs import insert
    from shop import tasks
    backend = tasks.add.get_backend()
    with transaction.atomic():
        others = [insert(connection, kind, queue=queue).id for kind in ("ask", "email.send", "json.dumps")]
        for id in ["abc", uuid.uuid4(), "1_0", 10**30, *map(str, others)]:
            try:
                backend.get_result(id)
            except Exception as error:
                print(type(error).__name__)
        transaction.set_rollback(True)
elif sys.argv[1] == "work_all":
    from django.db import connection, transaction
    from postgres_jobs import insert, testing
    from postgres_jobs.django import worker
    from shop import jobs, tasks
    with transaction.atomic():
        insert(connection, "ask", {"n": 1}, queue=queue)
        tasks.add.enqueue(1, 2)
        worked = testing.work_all(connection, worker)
        transaction.set_rollback(True)
    print(json.dumps([[one.kind, one.output, one.error] for one in worked]))
else:
    from django.core.management import execute_from_command_line
    execute_from_command_line(sys.argv)
"""
TASKS = """
import os
try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

@task(queue_name=os.environ["QUEUE"])
def add(a, b):
    return a + b

@task(queue_name=os.environ["QUEUE"], takes_context=True)
async def later(context):
    return context.attempt

@task(queue_name=os.environ["QUEUE"])
def fails():
    raise LookupError("no")
"""
JOBS = """
from django.db import connection
from postgres_jobs import Job
from postgres_jobs.django import worker

@worker.kind("ask")
def ask(job: Job[dict[str, int]]):
    with connection.cursor() as cursor:
        cursor.execute("select %s + 1", [job.args["n"]])
        return cursor.fetchone()[0]
"""


@pytest.fixture
def manage(url, queue, tmp_path):
    (tmp_path / "shop").mkdir()
    for name, text in {"manage.py": MANAGE, "shop/__init__.py": "", "shop/tasks.py": TASKS, "shop/jobs.py": JOBS}.items():
        (tmp_path / name).write_text(text)
    environment = os.environ | {"QUEUE": queue, "PYTHONPATH": os.path.abspath("src")}

    def start(*args):
        command = [sys.executable, "manage.py", *args]
        return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)

    return start


def test_the_command_works_tasks_and_jobs(url, queue, look, manage):
    from postgres_jobs import insert, wait_for

    ids = json.loads(manage("enqueue").communicate()[0])
    with psycopg.connect(url, autocommit=True) as connection:
        ids.append(insert(connection, "ask", {"n": 1}, queue=queue).id)
        worker = manage("jobs_worker", "--processes", "2", "--concurrency", "2")
        results = wait_for(connection, ids, 60)
    assert [(one.state, one.output) for one in results] == [
        ("completed", 3),
        ("completed", 1),
        ("discarded", None),
        ("completed", 2),
    ]
    assert look("select kind, priority from jobs.jobs where queue = %s order by id limit 2", queue) == [
        ("shop.tasks.add", 1),
        ("shop.tasks.later", -4),
    ]
    seen = json.loads(manage("results", *map(str, ids[:3])).communicate()[0])
    assert seen == [["SUCCESSFUL", 3, []], ["SUCCESSFUL", 1, []], ["FAILED", None, ["LookupError"]]]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0


def test_work_all_keeps_the_connection_of_a_test(manage):
    worked = json.loads(manage("work_all").communicate()[0])
    assert worked == [["ask", 2, None], ["shop.tasks.add", 3, None]]


def test_a_result_that_is_of_no_task_does_not_exist(manage):
    assert manage("missing").communicate()[0].split() == ["TaskResultDoesNotExist"] * 7
