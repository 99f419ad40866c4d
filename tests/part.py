"""Runs one part of the product as a process of its own on a test's database: `python -m tests.part PARENT worker|sweep NAME [SLOTS]`."""

import sys

from trinity.parent import bind_to_parent

if __name__ == "__main__":
    parent, part, database, *slots = sys.argv[1:]
    bind_to_parent(int(parent))

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
