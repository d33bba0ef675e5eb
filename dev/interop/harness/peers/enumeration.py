"""Scanners without a password learn nothing beyond NEGOTIATE."""

import concurrent.futures
import re
import shutil
import subprocess
import time

from ..model import Failure, Skip, group
from ..prepare import VENV
from .attacks import roads

# Names of accounts, shares, files and SIDs that a stranger must not learn. The server's own name is
# public: NEGOTIATE and the challenge show it.
SECRETS = [
    "smbuser",
    "share2",
    "torture",
    "hideunread",
    "noncanonical",
    "posixlocks",
    "rootless",
    "planted",
    "Administrators",
    "S-1-5-21-",
    "S-1-5-32-5",
    "Password Info",
    "Minimum password length",
]

NMAP = (
    "smb-enum-*,smb-ls,smb-mbenum,smb-os-discovery,smb-protocols,smb-security-mode,smb-server-stats,smb-system-info,"
    "smb-double-pulsar-backdoor,smb-vuln-*,smb2-*"
)

BIN = VENV / "bin"

# Each entry: name, a text in the output that proves that the tool reached the server, program and
# arguments.
TOOLS = [
    (
        "nmap",
        "signing enabled and required",
        ["nmap", "-Pn", "-n", "-sT", "-p", "445", "--script", NMAP, "--script-timeout", "60s", "{address}"],
    ),
    (
        "nmap-guest",
        "445/tcp open",
        [
            "nmap",
            "-Pn",
            "-n",
            "-sT",
            "-p",
            "445",
            "--script",
            "smb-enum-shares,smb-enum-users,smb-ls",
            "--script-args",
            "smbusername=guest,smbpassword=",
            "--script-timeout",
            "60s",
            "{address}",
        ],
    ),
    ("impacket-rpcdump", "rror", [BIN / "rpcdump.py", "-port", "445", "-target-ip", "{address}", "{address}"]),
    ("impacket-lookupsid", "rror", [BIN / "lookupsid.py", "-no-pass", "anonymous@{address}"]),
    ("impacket-lookupsid-null", "rror", [BIN / "lookupsid.py", "-no-pass", ":@{address}"]),
    ("impacket-samrdump", "rror", [BIN / "samrdump.py", "-no-pass", "anonymous@{address}"]),
    ("impacket-samrdump-null", "rror", [BIN / "samrdump.py", "-no-pass", "{address}"]),
    (
        "impacket-smbclient",
        "rror",
        [BIN / "smbclient.py", "-no-pass", "-inputfile", "{work}/commands", "anonymous@{address}"],
    ),
    (
        "impacket-smbclient-null",
        "rror",
        [BIN / "smbclient.py", "-no-pass", "-inputfile", "{work}/commands", "{address}"],
    ),
    ("impacket-net", "rror", [BIN / "net.py", "-no-pass", "anonymous@{address}", "user"]),
    ("impacket-services", "rror", [BIN / "services.py", "-no-pass", "anonymous@{address}", "list"]),
    ("impacket-reg", "rror", [BIN / "reg.py", "-no-pass", "anonymous@{address}", "query", "-keyName", "HKLM"]),
    ("impacket-machine-role", "rror", [BIN / "machine_role.py", "-no-pass", "anonymous@{address}"]),
    ("impacket-dump-ntlm-info", "SMB", [BIN / "DumpNTLMInfo.py", "{address}"]),
    ("smbclient-list", "NT_STATUS", ["smbclient", "-N", "-L", "{address}"]),
    ("smbclient-guest", "NT_STATUS", ["smbclient", "-U", "guest%", "-L", "{address}"]),
    ("smbclient-no-password", "NT_STATUS", ["smbclient", "-U", "somebody%", "//{address}/share", "-c", "ls"]),
    (
        "rpcclient-null",
        "NT_STATUS",
        ["rpcclient", "-N", "-U", "", "{address}", "-c", "srvinfo;lsaquery;enumdomusers;netshareenumall"],
    ),
    ("net-rpc", "NT_STATUS", ["net", "rpc", "info", "-N", "-U", "%", "-S", "{address}"]),
    ("enum4linux-ng", "Completed after", ["enum4linux-ng", "-A", "-t", "10", "{address}"]),
]


def learn(ctx, number, name, sign, command):
    """Runs one tool from an address of its own, so that its refusals throttle no other tool."""
    address, began = f"198.19.{100 + number}.1", time.monotonic()
    known = {"address": address, "work": ctx.work}
    command = [str(word).format(**known) for word in command]
    if not shutil.which(command[0]):
        raise Skip(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=150,
            cwd=ctx.work,
        )
        output = done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as e:
        output = (e.stdout or b"").decode(errors="replace") + "\n[no end after 150 s]"
    ctx.log.write(f"$ {' '.join(command)}\n{output}[{time.monotonic() - began:.1f} s]\n")
    # A name in the output that the tool itself was given proves nothing.
    told = output
    for word in command[1:]:
        told = told.replace(word, "")
    learned = [secret for secret in SECRETS if secret.lower() in told.lower()]
    if learned:
        raise Failure(f"it learned {', '.join(learned)}")
    if sign not in output:
        raise Failure(f"its output lacks {sign}: {output.strip()[-200:]}")


@group("attacks/enumeration", profile="attacks-as-shipped", named_only=True)
def enumeration(ctx):
    """nmap, impacket's examples, Samba's tools and enum4linux-ng without a password."""
    roads()
    for name, argument in ("nmap", "--version"), ("enum4linux-ng", "-h"):
        if shutil.which(name):
            _, said = ctx.command(name, argument)
            ctx.add(f"{name}-version", "pass", 0.0, f"{name} {re.search(r'[0-9]+[.][0-9.]*[0-9]', said)[0]}")
    (ctx.server.path / "planted.txt").write_text("planted")
    (ctx.work / "commands").write_text("shares\nuse share\nls\nwho\ninfo\n")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        begun = [
            (name, time.monotonic(), pool.submit(learn, ctx, number, name, sign, command))
            for number, (name, sign, command) in enumerate(TOOLS)
        ]
        for name, began, one in begun:
            error = one.exception()
            result = "pass" if error is None else "skip" if isinstance(error, Skip) else "fail"
            ctx.add(name, result, time.monotonic() - began, error or "")
