"""Makes a small file once, whole or not at all, whoever asks first: several processes may, and a reader never finds it half-written."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path


def made_once(file: Path, make: Callable[[], str], mode: int = 0o600) -> str:
    """What the file says; `make` says it if there is none yet. Raises ValueError for an empty one, which nobody of us has written."""
    if not file.exists():
        draft = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "w") as handle:
                handle.write(make())
                handle.flush()
                os.fsync(handle.fileno())
            with contextlib.suppress(FileExistsError):  # somebody was faster: theirs counts
                os.link(draft, file)
        finally:
            draft.unlink()
    said = file.read_text().strip()
    if not said:
        raise ValueError(f"{file} is empty; remove it")
    return said
