"""Every knob of the installation, read from the environment once; a bad value stops the start and is named."""

import hashlib
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dj_database_url
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from agents.once import made_once
from trinity import env

BASE_DIR = Path(__file__).resolve().parent.parent

# -- where things are -------------------------------------------------------------------------
TRINITY_DATA = Path(env.text("TRINITY_DATA", str(BASE_DIR / "var"))).resolve()
try:
    TRINITY_DATA.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds secrets and what agents said
except OSError as problem:
    raise ImproperlyConfigured(f"TRINITY_DATA must be a folder that can be written: {problem}") from problem

TRINITY_HOST = env.text("TRINITY_HOST", "127.0.0.1")
TRINITY_PORT = env.whole("TRINITY_PORT", 8000, least=1, most=65535)
TRINITY_BASE_URL = env.text("TRINITY_BASE_URL", f"http://{TRINITY_HOST}:{TRINITY_PORT}").rstrip("/")
if urlsplit(TRINITY_BASE_URL).scheme not in {"http", "https"}:
    raise ImproperlyConfigured(f"TRINITY_BASE_URL must begin with http:// or https://, not {TRINITY_BASE_URL!r}")

# -- the engine's limits, in seconds and counts ---------------------------------------------------
TRINITY_SLOTS = env.whole("TRINITY_SLOTS", 25, least=1, most=1000)  # turns at once per worker process
TRINITY_LEASE_SECONDS = env.whole("TRINITY_LEASE_SECONDS", 10, least=2, most=600)
TRINITY_GRACE_SECONDS = 5  # between TERM and KILL at a limit (product.md 3.11)
TRINITY_MAX_ATTEMPTS = 3
TRINITY_MAX_ACTIVE_PER_AGENT = env.whole("TRINITY_MAX_ACTIVE_PER_AGENT", 20, least=1, most=10_000)
TRINITY_MAX_ACTIVE_PER_USER = env.whole("TRINITY_MAX_ACTIVE_PER_USER", 100, least=1, most=100_000)
TRINITY_MAX_STARTS_PER_MINUTE = env.whole("TRINITY_MAX_STARTS_PER_MINUTE", 300, least=1, most=100_000)
TRINITY_MCP_PER_MINUTE = env.whole("TRINITY_MCP_PER_MINUTE", 600, least=1, most=1_000_000)  # requests of one caller
TRINITY_MAX_LOOP_DEPTH = env.whole("TRINITY_MAX_LOOP_DEPTH", 3, least=0, most=100)
TRINITY_SIGN_IN_FAILURES = env.whole("TRINITY_SIGN_IN_FAILURES", 10, least=1, most=10_000)  # per name and address
TRINITY_SIGN_IN_SECONDS = env.whole("TRINITY_SIGN_IN_SECONDS", 600, least=1, most=86_400)  # so long each one counts
TRINITY_PROXIES = env.whole("TRINITY_PROXIES", 0, least=0, most=10)  # of our own, each adding to X-Forwarded-For
TRINITY_FAILPOINT = env.text("TRINITY_FAILPOINT")  # where a process dies; for tests of crashes alone

# Who is told of a turn's life: trigger -> dotted path of an observer (agents.executions.Observer).
EXECUTION_OBSERVERS = {"loop": "loops.engine.observer"}
# Called inside the transaction that starts, stops or deletes an agent.
AGENT_OBSERVERS = ["loops.engine.agent_changed"]
# What the sweep does each second beside the ledger's own duties; called with the time.
SWEEP_DUTIES = ["loops.engine.wake_due", "loops.engine.end_overdue", "loops.engine.forget_old"]


# -- Django ---------------------------------------------------------------------------------------
def _secret_key() -> str:
    """The given key, or one made once for this data folder."""
    given = env.text("SECRET_KEY")
    if given:
        return given
    if os.environ.get("DATABASE_URL"):
        raise ImproperlyConfigured("SECRET_KEY must be set when DATABASE_URL is: every host has to use the same one")
    try:
        return made_once(TRINITY_DATA / "secret_key", lambda: secrets.token_urlsafe(48))
    except (OSError, ValueError) as problem:
        raise ImproperlyConfigured(f"SECRET_KEY is unset and cannot be made: {problem}") from problem


SECRET_KEY = _secret_key()
DEBUG = env.flag("DEBUG")
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]", TRINITY_HOST])
CSRF_TRUSTED_ORIGINS = [TRINITY_BASE_URL] if TRINITY_BASE_URL.startswith("https://") else []
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if TRINITY_BASE_URL.startswith("https://") else None
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = TRINITY_BASE_URL.startswith("https://")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.sessions",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "channels",
    "csp",
    "django_rq",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "trinity",
    "agents",
    "loops",
    "workspace",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
]

ROOT_URLCONF = "trinity.urls"
ASGI_APPLICATION = "trinity.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

AUTH_USER_MODEL = "agents.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 8}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "/static/"
STATIC_ROOT = TRINITY_DATA / "static"
STATIC_ROOT.mkdir(exist_ok=True)  # WhiteNoise warns of a missing one; the finders below need none
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True

# -- database: the truth --------------------------------------------------------------------------
# SQLite: IMMEDIATE, since a transaction that reads first and writes later fails at once under load
# otherwise ("database is locked"), whatever the timeout.
_SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": TRINITY_DATA / "trinity.sqlite3",
    "CONN_MAX_AGE": None,
    "OPTIONS": {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY;",
    },
    "TEST": {"NAME": TRINITY_DATA / "test.sqlite3"},
}


def _database() -> dict[str, Any]:
    """SQLite in the data folder, or what DATABASE_URL names; PostgreSQL through Django's pool."""
    url = env.text("DATABASE_URL")
    if not url:
        return _SQLITE
    try:
        parsed = dj_database_url.parse(url)
    except ValueError as problem:
        raise ImproperlyConfigured(f"DATABASE_URL cannot be read: {problem}") from problem
    if parsed.get("ENGINE") != "django.db.backends.postgresql":
        raise ImproperlyConfigured("DATABASE_URL must begin with postgresql:// (unset it to use SQLite)")
    given = parsed.get("OPTIONS", {})
    # Who is frozen or cut off in the middle of a transaction must not keep its locks for longer than its leases.
    silent = f"-c idle_in_transaction_session_timeout={TRINITY_LEASE_SECONDS}s {given.get('options', '')}".rstrip()
    options = {**given, "options": silent, "pool": {"min_size": 1, "max_size": 8, "timeout": 20}}
    return {**parsed, "CONN_MAX_AGE": 0, "OPTIONS": options}


DATABASES = {"default": _database()}


# -- Redis: hints only ----------------------------------------------------------------------------
def _embedded_socket() -> Path:
    """The embedded server's socket: in a short folder, as a socket's path may have 107 bytes at most."""
    digest = hashlib.sha256(str(TRINITY_DATA).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"trinity-{os.getuid()}-{digest}" / "redis.sock"


REDIS_EMBEDDED_SOCKET = None if env.text("REDIS_URL") else _embedded_socket()
REDIS_URL = env.text("REDIS_URL", f"unix://{REDIS_EMBEDDED_SOCKET}")
if urlsplit(REDIS_URL).scheme not in {"redis", "rediss", "unix"}:
    raise ImproperlyConfigured(f"REDIS_URL must begin with redis://, rediss:// or unix://, not {REDIS_URL!r}")

RQ_QUEUES = {"turns": {"URL": REDIS_URL, "DEFAULT_TIMEOUT": -1}}
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "trinity"},
    },
}

# -- edges ----------------------------------------------------------------------------------------
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    },
}
SECURE_REFERRER_POLICY = "same-origin"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "agents.rest.KeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["agents.rest.SignedIn"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["agents.rest.StrictJSONParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "agents.rest.AlwaysJson",
    "DEFAULT_METADATA_CLASS": None,
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "agents.rest.answer_problem",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Trinity Loops",
    "DESCRIPTION": "Start a loop, walk away, and read why it ended.",
    "VERSION": "0.1.0",
    "OAS_VERSION": "3.1.0",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SCHEMA_PATH_PREFIX": "/api",
    "SCHEMA_PATH_PREFIX_INSERT": "",
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "POSTPROCESSING_HOOKS": ["agents.api.openapi.complete"],
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{levelname} {name}: {message}", "style": "{"}},
    "filters": {
        # An installation that is starting is asked until it is whole; each no is not an error.
        "not_health": {
            "()": "django.utils.log.CallbackFilter",
            "callback": lambda record: "/health" not in record.getMessage(),
        },
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "INFO"},
    "loggers": {
        "django.request": {"handlers": ["console"], "level": "ERROR", "propagate": False, "filters": ["not_health"]},
        "django.server": {"handlers": ["console"], "level": "WARNING", "propagate": False},
        "daphne": {"handlers": ["console"], "level": "WARNING", "propagate": False},
        "mcp": {"handlers": ["console"], "level": "WARNING", "propagate": False},
        "rq": {"handlers": ["console"], "level": "WARNING", "propagate": False},
    },
}
