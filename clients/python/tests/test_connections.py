"""A worker whose calls fail in ways that the conformance suite cannot bring about."""

from test_worker import begin, done, working

from postgres_jobs import Worker
from postgres_jobs._link import Link


async def test_a_fetch_that_raises_anything_is_tried_again(url, queue, caplog, monkeypatch):
    """Such as a text of the server that is not in the database's encoding."""
    run, errors = Link.run, [RecursionError("too deep"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")]

    async def run_or_fail(link, sql, *values, **options):
        if "fetch_any" in sql and errors:
            raise errors.pop()
        return await run(link, sql, *values, **options)

    monkeypatch.setattr(Link, "run", run_or_fail)
    worker = Worker(url, queues=[queue])
    worker.kind("run")(lambda job: "output")
    async with working(worker):
        assert (await done(url, begin(url, queue, "run", {})))[0].output == "output"
    refused = [line.getMessage() for line in caplog.records if line.levelname == "ERROR"]
    assert len(refused) == 2 and "can't decode" in refused[0] and "too deep" in refused[1]
