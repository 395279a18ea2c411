import os

from postgres_jobs import Job, Worker

worker = Worker(os.environ["DATABASE_URL"], queues=["mail"])


@worker.kind("email.send", timeout=30)
async def send(job: Job[dict[str, str]]) -> dict[str, bool]:
    print("mail to", job.args["to"])
    return {"sent": True}


if __name__ == "__main__":  # so that a test can import the worker
    worker.run()
