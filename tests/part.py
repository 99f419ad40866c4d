"""Runs one part of the product as a process of its own against the database of a test: `python -m tests.part worker|sweep NAME [SLOTS]`."""

import sys

from trinity.parent import follow_parent

if __name__ == "__main__":
    follow_parent()
    part, database, *slots = sys.argv[1:]

    from django.conf import settings

    settings.DATABASES["default"]["NAME"] = database

    import django

    django.setup()

    from agents.sweep import run_sweep
    from agents.worker import run_worker

    if part == "worker":
        run_worker(int(slots[0]))
    else:
        run_sweep()
