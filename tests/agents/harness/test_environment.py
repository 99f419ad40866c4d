"""The clean environment, and the registry."""

from __future__ import annotations

import os
import pwd

import pytest

from agents.harness.command import argv
from agents.harness.environment import clean_environment
from agents.harness.process import CannotStart
from agents.harness.registry import harness

SERVER = {
    "PATH": "/opt/bin:/bin", "HOME": "/home/ada", "LANG": "de_DE.UTF-8", "LC_ALL": "C", "LC_TIME": "sv_SE", "TMPDIR": "/var/tmp",
    "USER": "ada", "SHELL": "/bin/zsh", "TZ": "Europe/Stockholm",
}  # fmt: skip
SECRETS = {
    "SECRET_KEY": "x", "DATABASE_URL": "x", "REDIS_URL": "x", "AWS_SECRET_ACCESS_KEY": "x", "OPENAI_API_KEY": "x", "PWD": "/srv",
    "TRINITY_DATA": "x", "TRINITY_API_KEY": "x", "TRINITY_EXECUTION_ID": "x", "DJANGO_SETTINGS_MODULE": "x", "PYTHONPATH": "x",
    "LD_PRELOAD": "x", "LOGNAME": "x", "LANGUAGE": "x", "lc_all": "x", "PATHS": "x", "MY_LC_ALL": "x",
}  # fmt: skip


def test_only_the_listed_names_pass():
    assert clean_environment({**SERVER, **SECRETS}) == SERVER


@pytest.mark.parametrize("server", [{}, {"PATH": "", "HOME": "", "LANG": ""}], ids=["missing", "empty"])
def test_path_home_and_lang_are_always_there(server):
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert clean_environment(server) == {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "LANG": "C.UTF-8"}


def test_the_servers_own_environment_is_not_changed():
    server = {"PATH": "/bin"}
    clean_environment(server)["PATH"] = "/tmp"
    assert server == {"PATH": "/bin"}


def test_the_command_harness_runs_the_command_as_it_stands(stage):
    order = stage.order("echo", "a b", "$HOME")
    assert harness("command").argv(order) == argv(order) == ["echo", "a b", "$HOME"]


def test_a_turn_without_a_recorded_end_has_no_result(stage):
    assert harness("command").collect(stage.order("true")) is None


@pytest.mark.parametrize("kind", ["", "Command", "no-such-harness", "contract"])
def test_an_unknown_harness_cannot_start_a_turn(kind):
    with pytest.raises(CannotStart, match="there is no harness"):
        harness(kind)
