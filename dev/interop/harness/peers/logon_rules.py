"""Rules for the logons of accounts: the status that smbclient is told; smbd with pdbedit's rules is the reference."""

import os
import re
import subprocess
import time

from ..model import Failure, group, require_tool

# The status of a logon with the right password, and the rules of the account: arguments of `frevo user set`, and of
# pdbedit or of `net sam set`. Where several rules forbid a logon, both servers tell of one of them.
RULES = {
    "none": ("", [], []),
    "expired": ("NT_STATUS_ACCOUNT_EXPIRED", ["--expires", "2026-01-01"], ["kickoff"]),
    "must-change": ("NT_STATUS_PASSWORD_MUST_CHANGE", ["--must-change"], ["must-change"]),
    "workstation": ("NT_STATUS_INVALID_WORKSTATION", ["--workstations", "DESK"], ["workstations"]),
    "disabled": ("NT_STATUS_ACCOUNT_DISABLED", ["disable"], ["disable"]),
    "expired-and-must-change": (
        "NT_STATUS_ACCOUNT_EXPIRED",
        ["--expires", "2026-01-01", "--must-change"],
        ["kickoff", "must-change"],
    ),
    "must-change-and-workstation": (
        "NT_STATUS_PASSWORD_MUST_CHANGE",
        ["--must-change", "--workstations", "DESK"],
        ["must-change", "workstations"],
    ),
    "disabled-and-expired": (
        "NT_STATUS_ACCOUNT_DISABLED",
        ["disable", "--expires", "2026-01-01"],
        ["disable", "kickoff"],
    ),
}
# Frevo alone: Samba's programs set no hours.
HOURS = ("NT_STATUS_INVALID_LOGON_HOURS", ["--hours", "never"], [])


def run(ctx, command, text=None, env=None):
    """Runs a program of the server's machine; fails with what it says."""
    command = [str(word) for word in command]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, env=env)
    ctx.log.write(" ".join(command) + "\n" + done.stdout + done.stderr)
    if done.returncode:
        raise Failure(f"{command[0]}: {done.stdout + done.stderr}")


def make_in_frevo(ctx, name, words):
    server = ctx.server
    user = [server.program, "user", "--config", server.directory / "frevo.toml"]
    run(ctx, [*user, "add", name, "--password-stdin"], server.password + "\n")
    rules = [word for word in words if word != "disable"]
    if rules:
        run(ctx, [*user, "set", name, *rules])
    if "disable" in words:
        run(ctx, [*user, "disable", name])


def make_in_samba(ctx, name, number, words):
    """Adds the account to smbd's own users of the host, and to its accounts."""
    server, conf = ctx.server, ctx.server.directory / "smb.conf"
    with open(server.directory / "passwd", "a", encoding="ascii") as users:
        users.write(f"{name}:x:{50_100 + number}:50001:{name}:/nonexistent:/bin/false\n")
    wrapped = {
        **os.environ,
        "LD_PRELOAD": "libnss_wrapper.so",
        "NSS_WRAPPER_PASSWD": str(server.directory / "passwd"),
        "NSS_WRAPPER_GROUP": str(server.directory / "group"),
    }
    pdbedit, net = ([require_tool(tool), "-s", conf] for tool in ("pdbedit", "net"))
    run(ctx, [*pdbedit, "-a", "-t", name], f"{server.password}\n" * 2, wrapped)
    commands = {
        "kickoff": [*pdbedit, "-r", "-u", name, "-K", "1767225600"],
        "must-change": [*net, "sam", "set", "pwdmustchangenow", name, "yes"],
        "workstations": [*net, "sam", "set", "workstations", name, "DESK"],
        "disable": [*pdbedit, "-r", "-u", name, "-c", "[D]"],
    }
    for word in words:
        run(ctx, commands[word], env=wrapped)


def told_by_samba(ctx, name):
    """Returns the status of a logon to smbd, which reads its new users of the host with a delay."""
    for _ in range(10):
        if (answer := told(ctx, name, ctx.server.password)) != "NT_STATUS_LOGON_FAILURE":
            break
        time.sleep(0.5)
    return answer


def told(ctx, name, password, *options):
    """Returns the status of a logon; an empty text if it succeeds."""
    client = ctx.server.smbclient("ls", user=name, password=password, options=options)
    done = subprocess.run(client, capture_output=True, text=True, timeout=60)
    ctx.log.write(done.stdout + done.stderr)
    found = re.search(r"NT_STATUS_\w+", done.stdout + done.stderr)
    return found.group() if found else ""


@group("logon-rules/smbclient", profile="passwords", beside=6)
def smbclient(ctx):
    """An account that has ended, must get a password, is disabled or used from elsewhere: the status of the logon."""
    is_frevo = ctx.server.kind == "frevo"
    rules = {**RULES, "hours": HOURS} if is_frevo else RULES
    for number, (title, (status, of_frevo, of_samba)) in enumerate(rules.items()):
        name = f"rule{number}"
        with ctx.check(title):
            if is_frevo:
                make_in_frevo(ctx, name, of_frevo)
                answer = told(ctx, name, ctx.server.password)
            else:
                make_in_samba(ctx, name, number, of_samba)
                answer = told_by_samba(ctx, name)
            if answer != status:
                raise Failure(f"{answer or 'success'} in place of {status or 'success'}")
    with ctx.check("wrong-password"):
        name = f"rule{list(RULES).index('expired')}"
        if (answer := told(ctx, name, "wrong")) != "NT_STATUS_LOGON_FAILURE":
            raise Failure(answer or "success")
    with ctx.check("named-workstation"):
        name = f"rule{list(RULES).index('workstation')}"
        if answer := told(ctx, name, ctx.server.password, "--netbiosname", "DESK"):
            raise Failure(answer)
