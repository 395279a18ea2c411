from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand
from django.utils.module_loading import autodiscover_modules

from ....__main__ import add_options, run
from ... import dsn, worker


class Command(BaseCommand):
    help = "Runs a worker with the handlers of the apps' modules jobs and tasks."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--database", default="default", help="a database of the settings (default)")
        add_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        def find() -> Any:
            autodiscover_modules("jobs", "tasks")
            worker.dsn = worker.dsn or dsn(options["database"])
            return worker

        sys.exit(run(find, options, [sys.executable, *sys.argv]))
