"""python -m postgres_jobs."""

import os
import signal
import subprocess
import sys
import time

import psycopg
from psycopg.conninfo import make_conninfo

from postgres_jobs import insert, wait_for

APP = """
import os
from postgres_jobs import Worker

worker = Worker(os.environ["DATABASE_URL"], name=os.environ["NAME"])

@worker.kind("die")
async def die(job):
    os._exit(7)

@worker.kind("live")
async def live(job):
    return os.environ["NAME"]
"""


def start(tmp_path, url, name, *args):
    (tmp_path / "app.py").write_text(APP)
    environment = os.environ | {"DATABASE_URL": url, "NAME": name, "PYTHONPATH": os.path.abspath("src")}
    command = [sys.executable, "-m", "postgres_jobs", "app:worker", *args]
    return subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)


def test_processes_are_replaced_and_stopped(url, queue, look, tmp_path):
    runner = start(tmp_path, url, queue, "--processes", "2", "--queue", queue, "--concurrency", "3")

    def workers():
        return look("select worker, concurrency from jobs.workers where queues = %s and running = 0 order by worker", [queue])

    latest = time.monotonic() + 60
    while workers() != [(f"{queue}:1", 3), (f"{queue}:2", 3)]:
        assert time.monotonic() < latest
        time.sleep(0.05)
    with psycopg.connect(url, autocommit=True) as connection:
        insert(connection, "die", queue=queue)
        said = ""
        while said.count("worker started") < 3:
            said += runner.stderr.readline()
        job = insert(connection, "live", queue=queue, timeout=-1)
        assert wait_for(connection, [job.id], 60)[0].output == queue
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(60) == 0 and "ended with 7; it is replaced in 1 s" in said

def test_a_worker_that_cannot_start_ends_the_runner(url, queue, tmp_path):
    for processes in ("1", "2"):
        runner = start(tmp_path, make_conninfo(url, dbname="conformance_absent"), queue, "--processes", processes)
        _, said = runner.communicate(timeout=60)
        assert runner.returncode == 1 and "Check the database in the URL." in said and "Traceback" not in said
