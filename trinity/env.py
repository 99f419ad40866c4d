"""Reads settings from the environment; a bad value is an error that names the variable and what it may be."""

import os

from django.core.exceptions import ImproperlyConfigured


def text(name: str, default: str = "") -> str:
    """The variable, or the default where it is unset or empty."""
    return os.environ.get(name) or default


def whole(name: str, default: int, *, least: int, most: int) -> int:
    """A whole number from `least` to `most`."""
    raw = os.environ.get(name)
    if not raw:
        return default
    try:
        value = int(raw)
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise ImproperlyConfigured(f"{name} must be a whole number from {least} to {most}, not {raw!r}")
    return value


def flag(name: str, default: bool = False) -> bool:
    """A switch: 1/0, true/false, yes/no, on/off."""
    raw = os.environ.get(name)
    if not raw:
        return default
    if raw.lower() in {"1", "true", "yes", "on"}:
        return True
    if raw.lower() in {"0", "false", "no", "off"}:
        return False
    raise ImproperlyConfigured(f"{name} must be 1 or 0, not {raw!r}")


def words(name: str, default: list[str]) -> list[str]:
    """A comma list."""
    raw = os.environ.get(name)
    return [word.strip() for word in raw.split(",") if word.strip()] if raw else default
