"""Users change their passwords with Samba's smbpasswd: SAMR, authenticated and sealed on the pipe."""

import subprocess

from ..model import Failure, group, require_tool

OLD, NEW = "Passw0rd", "N\u00e4chstes Wort 1"


def change(ctx, old, new):
    """Returns (status, output) of a change by smbuser."""
    command = [require_tool("smbpasswd"), "-s", "-r", ctx.server.address, "-U", "smbuser"]
    said = f"{old}\n{new}\n{new}\n"
    done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=60)
    ctx.log.write(done.stdout + done.stderr)
    return done.returncode, done.stdout + done.stderr


def logs_on(ctx, password):
    client = ctx.server.smbclient("ls", password=password)
    return subprocess.run(client, capture_output=True, timeout=60).returncode == 0


@group("smbpasswd/change", profile="passwords")
def smbpasswd(ctx):
    """`smbpasswd -r`: the new password is in force at once, and the old one is not."""
    with ctx.check("changes"):
        status, output = change(ctx, OLD, NEW)
        if status or "Password changed for user smbuser" not in output:
            raise Failure(output)
    with ctx.check("in-force"):
        if not logs_on(ctx, NEW):
            raise Failure("the new password is refused")
        if logs_on(ctx, OLD):
            raise Failure("the old password is accepted")
    with ctx.check("wrong-old-password"):
        if not change(ctx, "wrong", "other")[0]:
            raise Failure("a wrong password was enough")
    with ctx.check("back"):
        status, output = change(ctx, NEW, OLD)
        if status or not logs_on(ctx, OLD):
            raise Failure(output)
