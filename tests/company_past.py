"""What clients/examples/company cannot have in a moment: a past of six hours, and jobs that try
what a page can show. It writes into the tables of the extension, as no program may: only in a
database that is thrown away.

    DATABASE_URL=.. company_past.py [--odd]     once the company is at work
"""

import json
import os
import pathlib
import random
import sys
from collections import Counter
from datetime import datetime, timedelta, timezone
from math import sin

import psycopg
from psycopg.types.json import Jsonb

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "clients/examples/company"))
from company import KINDS, Kind, Unique, insert_many  # noqa: E402

HOURS = 6
luck = random.Random(12)


def grow_old(connection: psycopg.Connection) -> None:
    """Spreads the jobs that have ended over the last hours, in the order of their ids."""
    ((first, last),) = connection.execute("select min(id), max(id) from jobs.job").fetchall()

    def by(id: str) -> str:
        return f"interval '{HOURS} hours' * (1 - ({id} - {first}) / {last - first + 1}.0)"

    connection.execute(f"""
        with old as (select job_id from jobs.finished where job_id <= {last}), jobs_of_old as (
          update jobs.job set created_at = created_at - {by("id")}, scheduled_at = scheduled_at - {by("id")}
           where id in (select job_id from old)), errors_of_old as (
          update jobs.error set at = at - {by("job_id")} where job_id in (select job_id from old))
        update jobs.finished set finalized_at = finalized_at - {by("job_id")},
               attempted_at = attempted_at - {by("job_id")}
         where job_id in (select job_id from old)""")
    now = datetime.now(timezone.utc).replace(second=0, microsecond=0)
    rows = [
        (now - timedelta(minutes=minute), kind.queue, name, counts(kind, minute))
        for minute in range(1, 60 * HOURS)
        for name, kind in KINDS.items()
    ]
    insert = "insert into jobs.history_bucket (at, queue, kind, counts) values (%s, %s, %s, %s::bigint[])"
    connection.cursor().executemany(insert, rows)


def counts(kind: Kind, minute: int) -> list[int]:
    """What jobs.history_bucket has of a minute: places and counts in turns."""
    is_bad = 95 < minute < 110 and len(kind.errors) > 1
    started = round(kind.a_minute * (1 + 0.5 * sin(minute / 50)) * luck.uniform(0.6, 1.4) + luck.random())
    failed = sum(luck.random() < (0.7 if is_bad else sum(kind.errors.values())) for _ in range(started))
    counted = Counter({0: started, 1: started, 2: started - failed, 3: failed, 4: failed // 4})
    for _ in range(started):
        for time, seconds in enumerate((0.02 * (20 if is_bad else 1), kind.seconds * kind.steps)):
            micros = int(seconds * luck.lognormvariate(0, 0.7) * 1e6) + 257
            power = micros.bit_length() - 1
            counted[6 + time] += micros
            counted[8 + 138 * time + 1 + (power - 8) * 4 + (micros >> power - 2 & 3)] += 1
    return [number for pair in counted.items() if pair[1] for number in pair]


TEXTS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "Robert'); DROP TABLE jobs.job; --",
    "a & b &amp; `c` ${d} {{e}} %s \\",
    "ünï 🦀🏽 \u202eright to left",
    "a text without spaces " + "x" * 100,
]


def odd_text(connection: psycopg.Connection, text: str) -> None:
    """Everything that a user can name has this name."""
    job = {"kind": text, "queue": text, "tags": [text, "odd"], "args": {text: text}, "meta": {text: text}}
    insert_many(connection, [job | {"unique_opts": Unique(key=text)}, job])
    beat = "select jobs.worker_beat(%s, %s, 1, %s)"
    connection.execute(beat, (text, [text], Jsonb({"version": text, text: text})))
    fetch = "select id, token from jobs.fetch(%s, worker => %s)"
    failure = Jsonb({"type": text, "trace": f"{text}\n  at {text}\n"})
    for job in connection.execute(fetch, (text, text)).fetchall():
        connection.execute("select jobs.fail(%s, %s, %s, '1 day', details => %s)", (*job, text, failure))
    for job in connection.execute(fetch, (text, text)).fetchall():
        connection.execute("select jobs.complete(%s, %s, %s)", (*job, Jsonb([text, {text: [text]}])))
    connection.execute("select jobs.schedule(%s, '@yearly', %s, queue => %s, reason => %s)", [text] * 4)
    connection.execute("select jobs.pause_queue(%s, %s)", (text, text))


def large_jobs(connection: psycopg.Connection) -> None:
    """Numbers that JavaScript does not have, a megabyte, depth, nothing, and a thousand errors."""
    insert = "select id from jobs.insert(%s, %s::text::jsonb, queue => 'odd', max_attempts => 2000, scheduled_at => now() + interval '1 day')"
    exact = '{"id": 9007199254740993, "huge": 123456789012345678901234567890, "part": 0.10000000000000000555, "e": 1e40}'
    connection.execute(insert, ("odd.numbers", exact))
    rows = [{"row": n, "name": f"name {n}", "values": [n, n * n, None, True]} for n in range(15_000)]
    connection.execute(insert, ("odd.large", json.dumps({"rows": rows})))
    connection.execute(insert, ("odd.deep", '{"a":[' * 60 + "1" + "]}" * 60))
    connection.execute(insert, ("odd.empty", "null"))
    id = connection.execute(insert, ("odd.errors", "{}")).fetchone()
    connection.execute("update jobs.scheduled set state = 'retryable', attempt = 1000 where job_id = %s", id)
    connection.execute(
        """insert into jobs.error (job_id, at, attempt, state, worker, error)
           select %s, now() - (1000 - n) * interval '5 minutes', n, 'retryable', 'partners-1',
                  format('attempt %%s found port %%s closed', n, 1024 + n)
             from generate_series(1, 1000) n""",
        id,
    )


with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    grow_old(connection)
    if "--odd" in sys.argv:
        large_jobs(connection)
        for text in TEXTS:
            odd_text(connection, text)
            connection.commit()
