"""What of the server's own environment an agent may see; its settings and the turn's variables are added elsewhere."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

_PASSED_ON = frozenset({"PATH", "HOME", "LANG", "TMPDIR", "USER", "SHELL", "TZ"})
_PATH = "/usr/local/bin:/usr/bin:/bin"


def clean_environment(server_env: Mapping[str, str]) -> dict[str, str]:
    """The names on the list and LC_*, nothing else; PATH, HOME and LANG are always there."""
    env = {name: value for name, value in server_env.items() if name in _PASSED_ON or name.startswith("LC_")}
    env["PATH"] = env.get("PATH") or _PATH
    env["HOME"] = env.get("HOME") or _home()
    env["LANG"] = env.get("LANG") or "C.UTF-8"
    return env


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container may run as a user that has no name
        return "/"
