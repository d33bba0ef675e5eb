"""Accounts of a directory: OpenLDAP's slapd with Samba's schema, over TLS and StartTLS."""

import subprocess
import time

from ..model import ROOT, Failure, group
from ..slapd import ASKS, BASE, OTHER, PASSWORD, PORT, TLS_PORT, Slapd, nt_hash
from .smbclient import Smbclient, holding

# Seconds that the profile keeps answers, and uses them while the directory is away.
CACHE, AWAY = 2, 6


class Office:
    """The server, its directory, and smbclient."""

    def __init__(self, ctx):
        self.ctx, self.there = ctx, ctx.server.directory
        self.client = Smbclient(ctx, holding("SMB3_11", "SMB3_11"))
        self.slapd = Slapd(self.there, ctx.server.address, ctx.log)

    def enters(self, user, password=PASSWORD, share="share"):
        """Has a user list a share."""
        self.client.run("ls", share=share, user=user, password=password)

    def stays_out(self, status, user, password=PASSWORD, share="share"):
        """Has a user be refused."""
        self.client.refused(status, "ls", share=share, user=user, password=password)

    def hold(self, user):
        """Begins a session, and lists the share once."""
        # Without -c smbclient takes commands from its input.
        command = self.ctx.server.smbclient(user=user, password=PASSWORD, options=self.client.options)[:-2]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        held = subprocess.Popen([*map(str, command)], text=True, **pipes)
        held.stdin.write("ls\n")
        held.stdin.flush()
        return held

    def list_again(self, held):
        """Lists the share in a session that was begun before; returns all that smbclient has said."""
        return held.communicate("ls\nquit\n", timeout=60)[0]

    def frevo(self, *arguments, config=None):
        """Runs a command of Frevo about the configuration."""
        command = [self.ctx.server.program, *arguments, "--config", config or self.there / "frevo.toml"]
        return self.ctx.command(*command, timeout=30)


def logons(office):
    """Users of the directory, of its groups, and of the account file."""
    ctx = office.ctx
    with ctx.check("user"):
        office.enters("ann")
        office.enters("ANN")
    with ctx.check("wrong-password"):
        office.stays_out("NT_STATUS_LOGON_FAILURE", "ann", "wrong")
        # The account is asked for again, and no wrong password counts against the right one for long.
        office.enters("ann")
    with ctx.check("nobody"):
        office.stays_out("NT_STATUS_LOGON_FAILURE", "nobody")
        office.stays_out("NT_STATUS_LOGON_FAILURE", "*")
    with ctx.check("disabled"):
        office.stays_out("NT_STATUS_", "bob")
        office.stays_out("NT_STATUS_LOGON_FAILURE", "bob", "wrong")
    with ctx.check("ended"):
        office.stays_out("NT_STATUS_ACCOUNT_EXPIRED", "carl")
    with ctx.check("groups"):
        for share in ("staff", "west", "first"):
            office.enters("ann", share=share)
        office.enters("eve", share="first")
        for share in ("staff", "west"):
            office.stays_out("NT_STATUS_BAD_NETWORK_NAME", "eve", share=share)
    with ctx.check("file-first"):
        office.enters("smbuser", "Passw0rd")
        office.stays_out("NT_STATUS_LOGON_FAILURE", "smbuser", OTHER)
    with ctx.check("no-administrators"):
        # A group of the directory with this name is not that of the server.
        office.stays_out("NT_STATUS_BAD_NETWORK_NAME", "eve", share="admins")


def commands(office):
    """What the commands say of the directory."""
    ctx = office.ctx
    with ctx.check("check"):
        status, output = office.frevo("check")
        if status or "accounts of ldaps://" not in output or ": 5, 5 of them" not in output:
            raise Failure(f"status {status}: {output.strip()[-400:]}")
    with ctx.check("list"):
        status, output = office.frevo("user", "list", "--ldap")
        if status or "ann\tenabled" not in output or "bob\tdisabled" not in output:
            raise Failure(f"status {status}: {output.strip()[-300:]}")
    with ctx.check("show"):
        status, output = office.frevo("user", "show", "ann", "--ldap")
        wanted = ("staff", "first", "west", "S-1-5-21-1-2-3-3000")
        if status or any(word not in output for word in wanted):
            raise Failure(f"status {status}: {output.strip()[-300:]}")
    text = (office.there / "frevo.toml").read_text()
    changes = {
        "check-wrong-password": ("ldap.password", "wrong.password", "the name or the password is wrong"),
        "check-wrong-authority": ("ldap.pem", "other.pem", "TLS does not begin"),
        "check-wrong-base": (f'base = "{BASE}"', 'base = "dc=nowhere"', "no such entry"),
        "check-no-hash": ('"sambaNTPassword"', '"sambaLMPassword"', "of none can be read"),
        "check-nobody-asks": (f'bind_dn = "{ASKS}"', "", "no"),
    }
    for name, (before, after, sentence) in changes.items():
        with ctx.check(name):
            changed = text.replace(before, after)
            if name == "check-nobody-asks":
                changed = "".join(line for line in changed.splitlines(True) if "ldap.password" not in line)
            other = office.there / "other.toml"
            other.write_text(changed)
            _, output = office.frevo("check", config=other)
            told = [line for line in output.splitlines() if "[ldap]" in line and sentence in line]
            if len(told) != 1:
                raise Failure(output.strip()[-400:])


def changes(office):
    """A password and a right that change in the directory."""
    ctx, slapd = office.ctx, office.slapd
    with ctx.check("new-password"):
        slapd.modify("ann", "replace: sambaNTPassword", f"sambaNTPassword: {nt_hash(OTHER)}")
        time.sleep(CACHE + 0.5)
        office.enters("ann", OTHER)
        office.stays_out("NT_STATUS_LOGON_FAILURE", "ann")
        slapd.modify("ann", "replace: sambaNTPassword", f"sambaNTPassword: {nt_hash(PASSWORD)}")
        time.sleep(CACHE + 0.5)
        office.enters("ann")
    with ctx.check("session-ends"):
        # A session whose account is disabled meanwhile.
        held = office.hold("eve")
        time.sleep(1)
        slapd.modify("eve", "replace: sambaAcctFlags", "sambaAcctFlags: [UD         ]")
        time.sleep(2 * CACHE + 1)
        output = office.list_again(held)
        slapd.modify("eve", "replace: sambaAcctFlags", "sambaAcctFlags: [U          ]")
        if "NT_STATUS_" not in output:
            raise Failure(f"the session goes on: {output[-300:]}")


def outage(office):
    """The directory is away, and comes back."""
    ctx, slapd = office.ctx, office.slapd
    with ctx.check("away"):
        office.enters("ann")
        slapd.stop()
        time.sleep(CACHE + 0.5)
        office.enters("ann")
        # An account that was not asked for before.
        office.stays_out("NT_STATUS_NO_LOGON_SERVERS", "dora")
    with ctx.check("away-for-long"):
        held = office.hold("ann")
        time.sleep(AWAY + 1)
        office.stays_out("NT_STATUS_NO_LOGON_SERVERS", "ann")
        output = office.list_again(held)
        if "NT_STATUS_" in output or output.count("blocks of size") < 2:
            raise Failure(f"the session ends: {output[-300:]}")
    with ctx.check("starttls"):
        # The first server stays away, the second one has StartTLS.
        slapd.start(f"ldap://{ctx.server.address}:{PORT}")
        time.sleep(5.5)
        office.enters("ann")
        slapd.stop()
    with ctx.check("back"):
        slapd.start()
        time.sleep(5.5)
        office.enters("ann")
        office.enters("eve")


@group("ldap/openldap", profile="ldap", full_only=True, seconds=60)
def openldap(ctx):
    """Users of slapd with Samba's schema: groups, rules, an account file beside it, outages, changes."""
    subprocess.run([ROOT / "dev/install", "slapd", "ldap-utils"], check=True, stdout=ctx.log, stderr=ctx.log)
    if ctx.server.kind != "frevo":
        return
    office = Office(ctx)
    with ctx.check("without-directory"):
        office.stays_out("NT_STATUS_NO_LOGON_SERVERS", "ann")
        office.enters("smbuser", "Passw0rd")
    try:
        office.slapd.start(f"ldaps://{ctx.server.address}:{TLS_PORT}", f"ldap://{ctx.server.address}:{PORT}")
        # Nobody asks for some seconds after a failure.
        time.sleep(5.5)
        logons(office)
        commands(office)
        changes(office)
        outage(office)
    finally:
        office.slapd.stop()
