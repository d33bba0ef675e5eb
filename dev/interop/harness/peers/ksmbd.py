"""Frevo's client against the Linux kernel's SMB server, in a guest: every command, plain, signed and sealed.

The server's disk is inside the guest; smbclient shows what is on it.
"""

import os
import shutil
import subprocess
from pathlib import Path

from ..model import HERE, OUT, Failure, group
from .frevo_client import everything

# Each entry: name, client arguments.
VARIANTS = [
    ("3.1.1-default", []),
    *[(f"3.1.1-signed-{name}", ["--signing", name]) for name in ("aes-gmac", "aes-cmac", "hmac-sha256")],
    *[
        (f"3.1.1-sealed-{name}", ["-e", "--cipher", name])
        for name in ("aes-128-gcm", "aes-128-ccm", "aes-256-gcm", "aes-256-ccm")
    ],
    ("3.1.1-channels", ["--channels", "4"]),
    ("3.0.2", ["--max-dialect", "3.0.2", "--min-dialect", "3.0.2"]),
    ("3.0.2-sealed", ["--max-dialect", "3.0.2", "--min-dialect", "3.0.2", "-e"]),
    ("3.0", ["--max-dialect", "3.0", "--min-dialect", "3.0"]),
    ("3.0-sealed", ["--max-dialect", "3.0", "--min-dialect", "3.0", "-e"]),
]


def built():
    """Returns the kernel and ksmbd-tools; raises Skip with the reason if there are none."""
    kernel = os.environ.get("UML_KERNEL") or OUT / "kernel/linux-6.12"
    tools = os.environ.get("KSMBD_TOOLS") or OUT / "kernel/ksmbd-tools"
    if not Path(kernel).exists() or not Path(tools, "usr/sbin/ksmbd.mountd").exists():
        return (
            None,
            None,
            "no kernel with ksmbd: dev/interop/kernel/build makes one, or UML_KERNEL and KSMBD_TOOLS name one",
        )
    return str(kernel), str(tools), None


class Ksmbd:
    """The server in a guest, which runs until this process closes it."""

    kind, address, port = "ksmbd", "198.18.0.2", 445
    share, share2, user, user2, password = "share", "share2", "smbuser", "smbuser2", "Passw0rd"

    def __init__(self, kernel, tools):
        self.child = subprocess.Popen(
            [HERE / "with-ksmbd", "-l", "-k", kernel, "--", "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "KSMBD_TOOLS": tools},
        )
        if self.child.stdout.readline() != b"ready\n":
            raise RuntimeError("ksmbd: " + self.child.stderr.read().decode(errors="replace").strip())

    def environment(self):
        return {
            "SMB_ADDR": self.address,
            "SMB_PORT": str(self.port),
            "SMB_SHARE": self.share,
            "SMB_USER": self.user,
            "SMB_PASS": self.password,
            "LC_ALL": "C.UTF-8",
        }

    def end(self):
        self.child.stdin.close()
        self.child.wait(timeout=60)


class ThroughSmbclient:
    """The share as smbclient shows it, fetched anew for each comparison."""

    def __init__(self, ctx):
        self.ctx, self.count = ctx, 0

    def smbclient(self, commands, cwd=None):
        s = self.ctx.server
        return self.ctx.command(
            *s.smbclient(commands),
            cwd=cwd,
            timeout=120,
        )

    def done(self, commands, cwd=None):
        status, output = self.smbclient(commands, cwd)
        if status or "NT_STATUS" in output:
            raise Failure(f"smbclient {commands}: {output.strip()[-200:]}")

    def room(self):
        self.count += 1
        room = self.ctx.work / f"seen-{self.count}"
        room.mkdir()
        return room

    def folder(self, name=""):
        room = self.room()
        self.done(f'cd "{name}"; recurse; prompt; mget *', cwd=room)
        return room

    def bytes(self, name):
        room = self.room()
        self.done(f'get "{name}" it', cwd=room)
        data = (room / "it").read_bytes()
        shutil.rmtree(room)
        return data

    def exists(self, name):
        return (
            "NT_STATUS_NO_SUCH_FILE" not in (output := self.smbclient(f'ls "{name}"')[1])
            and "NT_STATUS_OBJECT" not in output
        )

    def write(self, name, data):
        room = self.room()
        (room / "it").write_bytes(data)
        self.done(f'put it "{name}"', cwd=room)

    def clear(self):
        self.smbclient("recurse; prompt; deltree *")


def variant(ctx, options):
    kernel, tools, missing = built()
    if missing:
        ctx.add("kernel", "skip", 0.0, missing)
        return
    before, ctx.server = ctx.server, Ksmbd(kernel, tools)
    try:
        everything(ctx, options, ThroughSmbclient(ctx))
    finally:
        ctx.server.end()
        ctx.server = before


for name, options in VARIANTS:

    def run(ctx, options=options):
        variant(ctx, options)

    run.__doc__ = f"Frevo's client against ksmbd: {name}"
    group(f"client-ksmbd/{name}", full_only=name != "3.1.1-default")(run)
