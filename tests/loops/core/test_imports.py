"""The core and the words think alone: they can be imported where no framework and none of the other rooms is."""

import subprocess
import sys

import pytest

FORBIDDEN = ("django", "rest_framework", "channels", "asgiref", "rq", "django_rq", "redis", "agents", "loops.models")
BLOCKER = """
import importlib, pkgutil, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if any(name == room or name.startswith(room + ".") for room in {forbidden!r}):
            raise ImportError("not allowed here: " + name)

sys.meta_path.insert(0, Blocker())
room = importlib.import_module({room!r})
for found in pkgutil.iter_modules(room.__path__, room.__name__ + "."):
    importlib.import_module(found.name)
    print(found.name)
"""


def imported(room: str) -> subprocess.CompletedProcess[str]:
    code = BLOCKER.format(forbidden=FORBIDDEN, room=room)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("room", "module"), [("loops.core", "loops.core.decide"), ("loops.words", "loops.words.proof")]
)
def test_a_thinking_room_imports_without_any_framework(room, module):
    done = imported(room)
    assert (done.returncode, done.stderr) == (0, "")
    assert module in done.stdout.split()


def test_the_blocker_would_notice_a_framework():
    done = imported("loops.api")
    assert done.returncode == 1
    assert "not allowed here" in done.stderr
