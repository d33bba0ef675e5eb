"""Client libraries of other languages, each driven by a small program here or by its own suite."""

import json
import re

from ..model import HERE, OUT, Failure, group
from ..prepare import GO_SUITE, VENV
from ..servers import INTERFACE_TOLD
from ..suites import LIBSMB2, LIBSMB2_VERSION, PYSMB, PYSMB_VERSION

PEERS = HERE / "peers"


def python(ctx, program, *args, needed, venv=VENV, env=None):
    """Runs a Python peer in the virtual environment; its lines become rows."""
    status, output = ctx.command(venv / "bin/python", PEERS / program, *args, timeout=240, env=env)
    ctx.report(output, needed=needed)
    if status:
        ctx.add("exit", "fail", 0.0, f"status {status}: {output.strip().splitlines()[-1] if output.strip() else ''}")


def left_behind(ctx, name, size):
    """Checks the file that a peer leaves: byte i is i * 7 + i / 256."""
    with ctx.check("disk-bytes"):
        try:
            found = (ctx.server.path / name).read_bytes()
        except FileNotFoundError as e:
            raise Failure(f"{name} is not on the server's disk") from e
        if found != bytes((i * 7 + (i >> 8)) & 255 for i in range(size)):
            raise Failure(f"{name}: {len(found)} bytes, not the written ones")


SMBPROTOCOL = [
    "write-read",
    "list",
    "stat",
    "rename",
    "directories",
    "times",
    "append",
    "lock-out",
    "delete-on-close",
    "compound",
    "echo",
    "wrong-password",
    "left",
]


@group("clients/smbprotocol")
def smbprotocol(ctx):
    """Python smbprotocol, signed."""
    python(ctx, "smbprotocol_peer.py", "signed", needed=SMBPROTOCOL)
    left_behind(ctx, "left by smbprotocol.bin", 3_000_001)


@group("clients/smbprotocol-sealed")
def smbprotocol_sealed(ctx):
    """Python smbprotocol, sealed."""
    python(ctx, "smbprotocol_peer.py", "sealed", needed=SMBPROTOCOL)
    left_behind(ctx, "left by smbprotocol.bin", 3_000_001)


INTERFACES = [
    "alone",
    "interface-added",
    "indices",
    "speed-and-queues",
    "overrides",
    "carrier-lost",
    "carrier-back",
    "address-removed",
    "address-added",
    "set-down",
    "interface-removed",
]


@group("clients/interfaces", profile="interfaces")
def interfaces(ctx):
    """The raw client asks for the server's network interfaces, which come and go."""
    if ctx.server.kind != "frevo":
        ctx.add("skip", "skip", 0.0, "smbd reads its interfaces once")
        return
    python(ctx, "interfaces_peer.py", needed=INTERFACES, env={"INTERFACE_TOLD": INTERFACE_TOLD})


IMPACKET = ["login", "list-shares", "write-read", "list", "directories", "rename", "wrong-password", "left"]


@group("clients/impacket")
def impacket(ctx):
    """Python impacket, 3.1.1."""
    python(ctx, "impacket_peer.py", "0x0311", needed=IMPACKET)
    left_behind(ctx, "left by impacket.bin", 3_000_001)


@group("clients/impacket-2.1", profile="old-dialects")
def impacket_21(ctx):
    """Python impacket, 2.1."""
    python(ctx, "impacket_peer.py", "0x0210", needed=IMPACKET)
    left_behind(ctx, "left by impacket.bin", 3_000_001)


PYSMB_CHECKS = [
    "login",
    "list-shares",
    "write-read",
    "list",
    "offset",
    "stat",
    "rename",
    "security",
    "absent",
    "echo",
    "left",
    "wrong-password",
]


@group("clients/pysmb", profile="old-dialects", full_only=True)
def pysmb(ctx):
    """Python pysmb, 2.0.2 after a NEGOTIATE of SMB1."""
    ctx.add("version", "pass", 0.0, f"pysmb {PYSMB_VERSION}")
    python(ctx, "pysmb_peer.py", needed=PYSMB_CHECKS, venv=PYSMB)
    left_behind(ctx, "left by pysmb.bin", 3_000_001)


@group("clients/demanded", profile="as-shipped", full_only=True)
def demanded(ctx):
    """Python clients that ask for no encryption, on a server that demands it."""
    python(ctx, "demanded_peer.py", "smbprotocol", needed=["smbprotocol"])
    python(ctx, "demanded_peer.py", "pysmb", needed=["pysmb"], venv=PYSMB)


LIBSMB2_CHECKS = [
    "login",
    "write-read",
    "list",
    "stat-and-space",
    "truncate",
    "rename",
    "list-shares",
    "left",
    "wrong-password",
]


def libsmb2(ctx, how, needed):
    ctx.add("version", "pass", 0.0, f"libsmb2 {LIBSMB2_VERSION}")
    status, output = ctx.command(LIBSMB2 / "run", "peer", how, timeout=120)
    ctx.report(output, needed=needed)
    if status:
        ctx.add("exit", "fail", 0.0, f"status {status}: {output.strip()[-200:]}")


# libsmb2-demanded does not ask for encryption. It encrypts because the server's answer to the logon
# demands it.
for _name, _how, _profile in (
    ("libsmb2", "plain", "default"),
    ("libsmb2-sealed", "sealed", "as-shipped"),
    ("libsmb2-demanded", "plain", "as-shipped"),
):

    @group(f"clients/{_name}", profile=_profile, full_only=True, doc=f"The C library libsmb2, {_how}")
    def _libsmb2(ctx, how=_how):
        libsmb2(ctx, how, LIBSMB2_CHECKS)
        left_behind(ctx, "left by libsmb2.bin", 3_000_001)


def smb2_rs(ctx):
    status, output = ctx.command(OUT / "tools/bin/frevo-peer-smb2", timeout=120)
    ctx.report(output, needed=["list-shares", "pipelined", "compound", "stat", "list", "rename-and-delete", "watch"])
    if status:
        ctx.add("exit", "fail", 0.0, f"status {status}: {output.strip()[-200:]}")
    left_behind(ctx, "pipelined.bin", 9_000_001)


@group("clients/smb2-rs")
def smb2_rs_plain(ctx):
    """The Rust crate smb2."""
    smb2_rs(ctx)


@group("clients/smb2-rs-sealed", profile="as-shipped")
def smb2_rs_sealed(ctx):
    """The Rust crate smb2, on a server that requires encryption."""
    smb2_rs(ctx)


@group("clients/go-smb2")
def go_smb2(ctx):
    """go-smb2's own test suite."""
    suite = GO_SUITE / "suite"
    if not suite.exists():
        ctx.add("suite", "skip", 0.0, "Go is missing or too old to build it")
        return
    server = ctx.server
    (ctx.work / "client_conf.json").write_text(
        json.dumps(
            {
                "max_credit_balance": 128,
                "transport": {"type": "tcp", "host": server.address, "port": server.port},
                "conn": {"signing": True, "dialect": 0x311},
                "session": {
                    "type": "ntlm",
                    "user": server.user,
                    "passwd": server.password,
                    "domain": "",
                    "workstation": "",
                    "targetSPN": "",
                },
                "tree_conn": {"share1": server.share, "share2": server.share2},
            }
        )
    )
    status, output = ctx.command(suite, "-test.v", "-test.timeout=180s", timeout=240)
    seen = 0
    for m in re.finditer(r"^--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)\n((?:    .*\n)*)", output, re.M):
        seen += 1
        ctx.add(
            m[2],
            {"PASS": "pass", "FAIL": "fail", "SKIP": "skip"}[m[1]],
            float(m[3]),
            m[4].strip() if m[1] != "PASS" else "",
        )
    if not seen or (status and "--- FAIL" not in output):
        ctx.add("suite", "fail", 0.0, f"status {status}, {seen} tests seen: {output.strip()[-250:]}")
