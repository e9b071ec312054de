"""Becomes the command it is given, tied to its parent's life, and under another account if one is named.

Run as a file: ``launcher.py PARENT_PID SIGNAL ACCOUNT COMMAND...`` where ACCOUNT is ``uid:gid`` or ``-``. On Linux
the kernel sends SIGNAL when the parent dies, however it dies. Elsewhere the next start finds what was left behind.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Change the account first: the kernel forgets the wish for a signal when the account changes."""
    parent, signal, account, *command = sys.argv[1:]
    if account != "-":
        uid, gid = map(int, account.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal), 0, 0, 0)
        if os.getppid() != int(parent):
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - the command is the supervisor's own


if __name__ == "__main__":
    main()
