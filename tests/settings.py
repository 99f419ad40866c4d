"""The settings under test: the product's own, with a data folder that is thrown away and quick password hashes."""

import atexit
import os
import shutil
import tempfile

_DATA = tempfile.mkdtemp(prefix="trinity-test-")
atexit.register(shutil.rmtree, _DATA, ignore_errors=True)
os.environ["TRINITY_DATA"] = _DATA

from trinity.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
