"""Places between two writes where tests make a process die or freeze; in the product nothing happens there.

TRINITY_FAILPOINT names one: `finish.run`, `finish.run@3` (the third time it is reached), `finish.run@1 STOP` (frozen instead of killed).
"""

from __future__ import annotations

import signal
import threading
from collections import Counter

from django.conf import settings

_reached: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """End this process here, the hard way, if this is the place that TRINITY_FAILPOINT names."""
    if settings.TRINITY_FAILPOINT:
        _look(name)


def _look(name: str) -> None:
    place, _, ending = settings.TRINITY_FAILPOINT.partition(" ")
    wanted, _, time = place.partition("@")
    _reached[name] += 1
    if name == wanted and _reached[name] == int(time or 1):
        # To this very thread, which must not get a step further; the whole process dies or stops with it.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP if ending == "STOP" else signal.SIGKILL)
