"""The management commands of people, keys and agents: what they make, print and refuse, with and without a server."""

import os
import subprocess
import sys
from io import StringIO

import pytest
from django.conf import settings
from django.contrib.auth import authenticate
from django.core.management import CommandError, call_command

from agents import keys
from agents.models import Agent, Audit, Key, User

PASSWORD = "a long enough passphrase 7"


def run(*args: str, **options: object) -> str:
    out = StringIO()
    call_command(*args, stdout=out, **options)
    return out.getvalue()


def refused(*args: str) -> str:
    with pytest.raises(CommandError) as refusal:
        run(*args)
    return str(refusal.value)


def trail() -> list[tuple[str, ...]]:
    return list(Audit.objects.order_by("pk").values_list("actor", "through", "action", "target", "verdict"))


# -- createuser -----------------------------------------------------------------------------------
@pytest.mark.parametrize(("flags", "kind"), [([], User.Kind.PLATFORM), (["--client"], User.Kind.CLIENT)])
def test_createuser_makes_a_person_who_can_sign_in(db, flags, kind):
    run("createuser", "erin", "--password", PASSWORD, *flags)
    erin = authenticate(username="erin", password=PASSWORD)
    assert erin.kind == kind and not erin.is_superuser and not erin.is_staff


def test_createuser_twice_refuses_and_keeps_the_first_password(cast):
    assert "USERNAME" in refused("createuser", "alice", "--password", "another long phrase 8")
    assert authenticate(username="alice", password=PASSWORD)


@pytest.mark.parametrize("name", ["", "a b", "agent:falcon", "x" * 151])
def test_createuser_refuses_names_that_are_none(db, name):
    assert "USERNAME" in refused("createuser", name, "--password", PASSWORD)
    assert not User.objects.exists()


@pytest.mark.parametrize(
    ("password", "said"), [("short", "at least 8"), ("password1", "common"), ("\udc80" * 9, "text")]
)
def test_createuser_refuses_weak_passwords_without_repeating_them(db, password, said):
    message = refused("createuser", "erin", "--password", password)
    assert message.startswith("--password") and said in message and "password1" not in message
    assert not User.objects.exists()


def test_createuser_names_every_option_that_is_wrong(db):
    message = refused("createuser", "a b", "--password", "x")
    assert "USERNAME" in message and "--password" in message


# -- createkey ------------------------------------------------------------------------------------
def test_createkey_prints_the_key_alone_and_keeps_only_its_hash(cast):
    printed = run("createkey", "alice")
    secret = printed.removesuffix("\n")
    assert printed == f"{secret}\n" and " " not in secret
    key = Key.objects.get()
    assert key.digest == keys.digest(secret) and secret not in str(vars(key))
    assert keys.look_up(secret, "rest").user == cast.alice
    assert trail() == [("alice", "command", "key.create", str(key.pk), "allowed")]


def test_createkey_binds_a_key_to_an_agent_and_labels_it(cast):
    secret = run("createkey", "alice", "--agent", "falcon", "--name", "ci").strip()
    assert keys.look_up(secret, "rest").agent == cast.falcon
    assert Key.objects.get().name == "ci"


def test_createkey_lets_an_admin_bind_a_key_to_any_agent(cast):
    assert keys.look_up(run("createkey", "root", "--agent", "falcon").strip(), "rest").agent == cast.falcon


@pytest.mark.parametrize("person", ["bob", "carol", "dora"])
def test_createkey_refuses_to_bind_to_an_agent_that_the_person_does_not_manage(cast, person):
    assert refused("createkey", person, "--agent", "falcon").startswith("--agent")
    assert not Key.objects.exists() and not trail()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nobody"], "USERNAME: there is no user named nobody"),
        (["alice", "--agent", "nope"], "--agent: there is no agent named nope"),
        (["alice", "--name", "x" * 101], "--name: Ensure this value has at most 100 characters"),
        (["alice", "--name", ""], "--name"),
        (["alice", "--name", "\udc80"], "--name"),
    ],
)
def test_createkey_names_what_is_wrong(cast, args, said):
    assert refused("createkey", *args).startswith(said)
    assert not Key.objects.exists()


def test_createkey_takes_a_label_of_100_characters(cast):
    run("createkey", "alice", "--name", "x" * 100)
    assert len(Key.objects.get().name) == 100


# -- createagent ----------------------------------------------------------------------------------
def test_createagent_makes_a_running_agent_without_looking_for_its_program(cast):
    said = run(
        *("createagent", "heron", "--owner", "alice", "--command", "/no/such/program 'two words' --x"),
        *("--output", "json", "--timeout", "300", "--parallel", "1"),
    )
    heron = Agent.objects.get(name="heron")
    assert heron.command == ["/no/such/program", "two words", "--x"]
    assert (heron.status, heron.harness, heron.output) == ("running", "command", "json")
    assert (heron.timeout_seconds, heron.max_parallel_tasks, heron.owner) == (300, 1, cast.alice)
    assert heron.workspace.is_dir() and str(heron.workspace) in said
    assert trail() == [("alice", "command", "agent.change", "heron", "allowed")]


def test_createagent_leaves_what_is_not_given_to_the_rows_defaults(cast):
    run("createagent", "heron", "--owner", "alice", "--command", "true")
    heron = Agent.objects.get(name="heron")
    assert (heron.output, heron.timeout_seconds, heron.max_parallel_tasks) == ("text", 3600, 3)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--timeout", "59", "from 60 to 7,200"),
        ("--timeout", "7201", "from 60 to 7,200"),
        ("--timeout", "abc", "from 60 to 7,200"),
        ("--timeout", "6e2", "from 60 to 7,200"),
        ("--timeout", "9" * 5000, "from 60 to 7,200"),
        ("--parallel", "0", "from 1 to 32"),
        ("--parallel", "33", "from 1 to 32"),
        ("--parallel", "-1", "from 1 to 32"),
        ("--output", "xml", "text or json"),
        ("--command", "", "1 to 200 non-empty texts"),
        ("--command", "say 'hello", "cannot be split"),
        ("--command", "say \udc80", "broken characters"),
    ],
)
def test_createagent_names_the_option_and_its_range(cast, option, value, said):
    args = {"--owner": "alice", "--command": "true", option: value}
    message = refused("createagent", "heron", *(f"{name}={value}" for name, value in args.items()))
    assert message.startswith(option) and said in message
    assert not Agent.objects.filter(name="heron").exists() and not trail()


@pytest.mark.parametrize(("option", "value"), [("timeout", 60), ("timeout", 7200), ("parallel", 1), ("parallel", 32)])
def test_createagent_takes_the_bounds_themselves(cast, option, value):
    run("createagent", "heron", "--owner", "alice", "--command", "true", f"--{option}", str(value))
    heron = Agent.objects.get(name="heron")
    assert value in (heron.timeout_seconds, heron.max_parallel_tasks)


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "x" * 64, "é"])
def test_createagent_refuses_names_that_could_not_stand_in_an_address(cast, name):
    assert refused("createagent", "--owner", "alice", "--command", "true", "--", name).startswith("NAME")


@pytest.mark.parametrize("owner", ["nobody", "dora"])
def test_createagent_wants_an_owner_who_may_have_agents(cast, owner):
    assert refused("createagent", "heron", "--owner", owner, "--command", "true").startswith("--owner")


def test_createagent_refuses_a_disabled_owner(cast):
    User.objects.filter(pk=cast.alice.pk).update(is_active=False)
    assert refused("createagent", "heron", "--owner", "alice", "--command", "true").startswith("--owner")


def test_createagent_refuses_the_name_of_a_living_agent_and_takes_that_of_a_deleted_one(cast, now):
    assert "falcon" in refused("createagent", "falcon", "--owner", "carol", "--command", "true")
    Agent.objects.filter(pk=cast.falcon.pk).update(deleted_at=now)
    run("createagent", "falcon", "--owner", "carol", "--command", "true")
    assert Agent.objects.living().get(name="falcon").owner == cast.carol


# -- as processes, with no server of any kind -----------------------------------------------------
@pytest.fixture
def manage(tmp_path):
    """Runs `manage.py` on a data folder of its own, where nothing was set up and no Redis answers."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    environment |= {"TRINITY_DATA": str(tmp_path), "REDIS_URL": f"unix://{tmp_path}/nobody.sock"}
    environment.pop("DATABASE_URL", None)

    def call(*args: str) -> subprocess.CompletedProcess:
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), *args]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    return call


def test_commands_work_alone_and_say_on_stderr_alone_what_is_wrong(manage):
    early = manage("createuser", "erin", "--password", PASSWORD)
    assert (early.returncode, early.stdout) == (1, "") and "manage.py migrate" in early.stderr
    assert "Traceback" not in early.stderr

    assert manage("migrate", "-v0").returncode == 0
    assert manage("createuser", "erin", "--password", PASSWORD).returncode == 0
    made = manage("createagent", "heron", "--owner", "erin", "--command", "true")
    assert (made.returncode, made.stderr) == (0, "")
    bad = manage("createagent", "ibis", "--owner", "erin", "--command", "true", "--timeout", "5")
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr == "CommandError: --timeout must be a whole number from 60 to 7,200.\n"
    key = manage("createkey", "erin", "--agent", "heron")
    assert (key.returncode, key.stderr) == (0, "") and key.stdout.startswith(keys.PREFIX)
    assert len(key.stdout.splitlines()) == 1

    seeded = manage("seed")
    assert seeded.returncode == 0 and seeded.stdout.splitlines()[-1].startswith("admin / ")
    assert seeded.stderr.strip(), "a Redis that is away is said"
    assert all(line.startswith("WARNING ") for line in seeded.stderr.splitlines())


def test_a_command_that_says_a_hint_ends_well_every_time(tmp_path):
    """Its interpreter goes down while the thread that sends hints is there."""
    environment = {**os.environ, "TRINITY_DATA": str(tmp_path), "DJANGO_SETTINGS_MODULE": "trinity.settings"}
    for name in ("DATABASE_URL", "REDIS_URL"):
        environment.pop(name, None)

    def manage(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True)

    assert manage("migrate", "-v0").returncode == 0
    assert manage("createuser", "ann", "--password", "a long enough one").returncode == 0
    for number in range(6):
        done = manage("createagent", f"agent-{number}", "--owner", "ann", "--command", "true")
        assert done.returncode == 0, done.stderr
