#!/usr/bin/env python
"""The entry: every command of the product starts here."""

import os
import sys


def main() -> None:
    """Run a command; a bad setting is named on stderr and ends with exit code 1."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trinity.settings")

    import django
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        django.setup()
    except ImproperlyConfigured as problem:
        sys.exit(f"error: {problem}")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # Ctrl-C while it loads: nothing has begun that would have to be ended in order
        sys.exit(130)
