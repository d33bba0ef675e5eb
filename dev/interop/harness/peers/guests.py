"""Clients without an account, on shares that let guests in; smbd with `map to guest = bad user` is the reference."""

import re

from ..model import Failure, group
from .cifs import script
from .clients import python
from .smbclient import Smbclient, holding

# Arguments of smbclient for clients without an account: nobody, the user guest, a user that does not exist.
NOBODIES = {"anonymous": ("-U", "%"), "guest": ("-N", "-U", "guest"), "stranger": ("-U", "stranger%something")}


@group("guests/smbclient", profile="guests")
def smbclient(ctx):
    """smbclient as nobody, as guest and as a user without an account: the shares for guests, and nothing else."""
    server = ctx.server
    is_frevo = server.kind == "frevo"
    local = ctx.work / "local"
    local.write_text("a scan")
    for name in ("scans", "inbox"):
        (server.directory / name).chmod(0o777)
    readable = server.directory / "scans/readable"
    readable.write_text("for guests")
    readable.chmod(0o644)

    def run(who, share, *script):
        where = f"//{server.address}/{share}"
        return ctx.command("smbclient", where, "-p", server.port, *who, "-m", "SMB3_11", "-c", "; ".join(script))

    def wanted(output, text):
        if text not in output:
            raise Failure(f"wanted {text}, got: {output.strip()[-200:] or 'success'}")

    for name, who in NOBODIES.items():
        with ctx.check(f"{name}-reads"):
            status, output = run(who, "scans", "get readable -")
            if status or "for guests" not in output:
                raise Failure(f"status {status}: {output.strip()[-200:]}")
        with ctx.check(f"{name}-does-not-write"):
            wanted(run(who, "scans", f'put "{local}" x')[1], "NT_STATUS_ACCESS_DENIED")
        with ctx.check(f"{name}-writes-where-it-may"):
            status, output = run(who, "inbox", f'put "{local}" {name}', f"get {name} -", f"del {name}")
            if status or re.search(r"NT_STATUS_[A-Z]", output):
                raise Failure(f"status {status}: {output.strip()[-200:]}")
        with ctx.check(f"{name}-uses-no-other-share"):
            wanted(run(who, server.share, "ls")[1], "NT_STATUS_ACCESS_DENIED")
        with ctx.check(f"{name}-lists-shares"):
            status, output = ctx.command("smbclient", "-L", server.address, "-p", server.port, *who, "-m", "SMB3_11")
            shares = set(re.findall(r"^\s+(\S+)\s+(?:Disk|IPC)\b", output, re.M))
            if not {"scans", "inbox", "IPC$"} <= shares or (is_frevo and server.share in shares):
                raise Failure(f"status {status}, shares {sorted(shares)}")
        with ctx.check(f"{name}-lists-no-accounts"):
            _, output = ctx.command("rpcclient", server.address, "-p", server.port, *who, "-c", "enumdomusers")
            if server.user in output:
                raise Failure(output.strip()[-200:])
    with ctx.check("wrong-password-of-an-account"):
        wanted(run(("-U", f"{server.user}%wrong"), "scans", "ls")[1], "NT_STATUS_LOGON_FAILURE")
    with ctx.check("account-with-its-rights"):
        Smbclient(ctx, holding("SMB3_11", "SMB3_11")).run(f'put "{local}" mine', "del mine", share=server.share)
    with ctx.check("guests-file-is-the-guest-accounts"):
        run(NOBODIES["guest"], "inbox", f'put "{local}" kept')
        owner = (server.directory / "inbox/kept").stat().st_uid
        if owner in (0, 65_533):
            raise Failure(f"the file belongs to {owner}")


@group("guests/smbprotocol", profile="guests")
def smbprotocol(ctx):
    """smbprotocol as guest and as a user without an account: flags of the session, unsigned requests of 3.1.1."""
    (ctx.server.directory / "inbox").chmod(0o777)
    for user in ("guest", "stranger"):
        needed = [f"{user}-{what}" for what in ("is-a-guest", "writes", "uses-no-other-share")]
        python(ctx, "guests_peer.py", user, needed=needed)


@group("guests/cifs", profile="guests")
def cifs(ctx):
    """cifs.ko with sec=none and as a user without an account: reading, writing where guests may."""
    (ctx.server.directory / "inbox").chmod(0o777)
    for name, options, env in (
        ("anonymous", "sec=none", {}),
        ("stranger", "", {"SMB_USER": "stranger", "SMB_PASS": "something"}),
    ):
        with ctx.check(name):
            output = script(
                ctx,
                options,
                "echo scanned > new; cat new; mv new moved; ls; rm moved; grep ' /mnt/smb cifs ' /proc/mounts",
                env={"SMB_SHARE": "inbox", **env},
            )
            if "scanned" not in output or "moved" not in output:
                raise Failure(output.strip()[-250:])
