"""Remote procedure calls on pipes and over TCP: rpcclient, impacket and smbtorture's rpc.* suites."""

import re

from ..model import HERE, Failure, Skip, group
from ..prepare import VENV
from ..realm import with_realm

# Commands of rpcclient, with a text that the answer has, by the interface that they call.
CALLS = {
    "srvsvc": [("srvinfo", "platform_id"), ("netshareenumall", "netname: share")],
    # rpcclient shows nothing of the answer.
    "wkssvc": [("wkssvc_wkstagetinfo", "")],
    "lsarpc": [("lsaquery", "Domain"), ("lookupnames smbuser", "(User: 1)"), ("getusername", "smbuser")],
    "samr": [("enumdomusers", "[smbuser]"), ("querydominfo", "Total Users")],
}

# The interfaces over TCP, with the levels at which they answer.
OVER_TCP = {"lsarpc": ("sign", "seal"), "samr": ("seal",)}

SUITES = ["rpc.srvsvc", "rpc.wkssvc", "rpc.lsa", "rpc.samr"]


def rpcclient(ctx, binding, command, password=None):
    """Returns (status, output) of one command of rpcclient."""
    account = f"{ctx.server.user}%{password or ctx.server.password}"
    return ctx.command("rpcclient", "-U", account, binding, "-c", command, timeout=60)


def answered(ctx, binding, command, text):
    status, output = rpcclient(ctx, binding, command)
    if status or text not in output:
        raise Failure(output)


def refused(ctx, binding, command, *words, password=None):
    status, output = rpcclient(ctx, binding, command, password)
    if not status or not any(word in output for word in words):
        raise Failure(output)


def only_frevo(ctx):
    if ctx.server.kind != "frevo":
        raise Skip("smbd serves RPC over TCP as a domain controller only")


@group("rpc/pipes", profile="rpc")
def pipes(ctx):
    """rpcclient on pipes, with RPC's own signatures and seals, and without."""
    for interface, calls in CALLS.items():
        for protection in ("", "[sign]", "[seal]"):
            for command, text in calls:
                name = f"{interface}-{command.split()[0]}-{protection.strip('[]') or 'plain'}"
                with ctx.check(name):
                    answered(ctx, f"ncacn_np:{ctx.server.address}{protection}", command, text)
    # A logon by NTLM alone, which agrees neither on signing nor on sealing.
    with ctx.check("lsarpc-getusername-connect"):
        if ctx.server.kind != "frevo":
            raise Skip("smbd answers lsarpc at this level only if its configuration allows it")
        answered(ctx, f"ncacn_np:{ctx.server.address}[connect]", "getusername", ctx.server.user)


@group("rpc/tcp", profile="rpc")
def tcp(ctx):
    """rpcclient over TCP, by way of the endpoint mapper: each interface at its level and below it."""
    for interface, calls in CALLS.items():
        for level in ("sign", "seal"):
            binding = f"ncacn_ip_tcp:{ctx.server.address}[{level}]"
            for command, text in calls:
                with ctx.check(f"{interface}-{command.split()[0]}-{level}"):
                    only_frevo(ctx)
                    if level in OVER_TCP.get(interface, ()):
                        answered(ctx, binding, command, text)
                    elif interface in OVER_TCP:
                        refused(ctx, binding, command, "NT_STATUS_ACCESS_DENIED")
                    else:
                        refused(ctx, binding, command, "NT_STATUS_")
    with ctx.check("wrong-password"):
        only_frevo(ctx)
        binding = f"ncacn_ip_tcp:{ctx.server.address}[seal]"
        words = ("NT_STATUS_LOGON_FAILURE", "NT_STATUS_ACCESS_DENIED", "NT_STATUS_NETWORK_ACCESS_DENIED")
        refused(ctx, binding, "lookupnames smbuser", *words, "NT_STATUS_", password="wrong")


@group("rpc/impacket", profile="rpc")
def impacket(ctx):
    """impacket: the endpoint mapper without a logon, and calls over TCP, signed and sealed."""
    if ctx.server.kind != "frevo":
        with ctx.check("endpoints"):
            raise Skip("smbd serves RPC over TCP as a domain controller only")
        return
    with ctx.check("rpcdump"):
        status, output = ctx.command(VENV / "bin/rpcdump.py", ctx.server.address)
        if status or not re.search(r"ncacn_ip_tcp:[0-9.]+\[[0-9]+\]", output) or r"\PIPE\samr" not in output:
            raise Failure(output)
    status, output = ctx.command(VENV / "bin/python", HERE / "peers/rpc_peer.py")
    ctx.report(output, needed=["endpoints", "samr-sealed", "samr-signed", "samr-plain", "lsarpc-signed"])


@group("rpc/kerberos", profile="rpc")
def kerberos(ctx):
    """rpcclient with a ticket of MIT's KDC, on pipes and over TCP: signed and sealed, in SPNEGO and without."""
    if ctx.server.kind != "frevo":
        with ctx.check("pipe-sign"):
            raise Skip("smbd serves RPC over TCP as a domain controller only")
        return
    command = with_realm(ctx.server, "[rpc]", "enabled = true", sections=[r"account_listing = \"users\""])
    _, output = ctx.command(*command, HERE / "peers/rpc-kerberos", timeout=120)
    needed = ["pipe-sign", "pipe-seal", "tcp-sign", "tcp-seal", "samr-sealed", "logged"]
    needed += ["bare-pipe-sign", "bare-pipe-seal", "bare-tcp-sign", "bare-tcp-seal"]
    needed += ["bare-samr-sealed", "bare-pipe-connect"]
    ctx.report(output, needed=needed)


@group("rpc/torture", profile="rpc", seconds=300)
def torture(ctx):
    """smbtorture: the endpoint mapper over TCP and on its pipe, the services on their pipes."""
    for suite in SUITES:
        run_suite(ctx, suite, f"ncacn_np:{ctx.server.address}")
    run_suite(ctx, "rpc.epmapper", f"ncacn_np:{ctx.server.address}")
    if ctx.server.kind == "frevo":
        run_suite(ctx, "rpc.epmapper", f"ncacn_ip_tcp:{ctx.server.address}", "-tcp")


def run_suite(ctx, suite, binding, suffix="", user=None, options=()):
    """Adds a row for each test of a suite."""
    account = f"{user or ctx.server.user}%{ctx.server.password}"
    samba = ctx.server.samba
    program = [HERE / "newer-samba", "-x", samba, "smbtorture"] if samba else ["smbtorture"]
    status, output = ctx.command(*program, "--format=subunit", "-U", account, *options, binding, suite, timeout=120)
    found = re.findall(r"^(success|failure|error|skip): (.+?)(?: \[\n(.*?)\n\])?$", output, re.MULTILINE | re.DOTALL)
    if not found:
        ctx.add(f"{suite}{suffix}/starts", "fail", 0.0, f"status {status}: {output[-200:]}")
    for result, test, why in found:
        result = {"success": "pass", "skip": "skip"}.get(result, "fail")
        name = re.sub(r"[^A-Za-z0-9]+", "-", test).strip("-")
        ctx.add(f"{suite}{suffix}/{name}", result, 0.0, why if result != "pass" else "")
