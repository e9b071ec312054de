"""The unprivileged account that a server needs when it is started by root, and what that account may use."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
from pathlib import Path

from deploy.embedded.process import Account
from services.chassis.kernel.errors import ConfigurationError

ACCOUNT = "embedded_postgres"
FALLBACK = "nobody"


def service_account() -> Account | None:
    """The account to run a database server as; None when we are not root and run it ourselves."""
    if os.geteuid() != 0:
        return None
    entry = _find(ACCOUNT) or _make(ACCOUNT) or _find(FALLBACK)
    if entry is None:
        raise ConfigurationError(
            "ACCOUNT_MISSING",
            "the database refuses to run as root, and there is no account to run it as",
            remedy=f"make one (useradd --system {ACCOUNT}), or start as another user",
        )
    return entry


def can_reach(path: Path, account: Account) -> bool:
    """Whether the account may enter every folder above the path."""
    return all(_allows(folder, account, stat.S_IXOTH) for folder in path.resolve().parents)


def can_read(path: Path, account: Account) -> bool:
    """Whether the account may read and execute the file."""
    return _allows(path, account, stat.S_IROTH | stat.S_IXOTH)


def _allows(path: Path, account: Account, bits: int) -> bool:
    status = path.stat()
    if status.st_uid == account.uid:
        bits <<= 6
    elif status.st_gid == account.gid:
        bits <<= 3
    return status.st_mode & bits == bits


def _find(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_uid, entry.pw_gid)


def _make(name: str) -> Account | None:
    useradd = shutil.which("useradd")
    if useradd is None:
        return None
    command = [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name]
    subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - a fixed command line
    return _find(name)
