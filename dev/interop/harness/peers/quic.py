"""SMB over QUIC: smbclient and smbtorture of Samba 4.25, over UDP."""

import fnmatch
import os
import platform
from pathlib import Path

from ..model import Failure, Skip, group
from ..servers import newer_samba
from .smbtorture import listing, rows, short_name, torture

SAMBA, PORT = "4.25", 4433
# Samba's programs want a name for QUIC: smbclient tries no address, and smbtorture sends one in the form of a name.
NAME = "frevo.example"
# Suites that run over TCP and over QUIC. The same tests must pass.
SUITES = {
    "smb2.connect": 60,
    "smb2.compound": 120,
    "smb2.lock": 120,
    "smb2.read": 60,
    "smb2.rw": 60,
    "smb2.create": 120,
    "smb2.rename": 60,
    "smb2.streams": 60,
    "smb2.getinfo": 60,
    "smb2.dir": 180,
    "smb2.session": 400,
    "smb2.durable-open": 120,
    "smb2.durable-v2-open": 120,
    "smb2.lease": 400,
    "smb2.ioctl": 120,
    "smb2.credits": 60,
    "smb2.sharemode": 60,
    "smb2.setinfo": 60,
    "smb2.delete-on-close-perms": 60,
    "smb2.acls-with-sysacl": 60,
    "smb2.timestamps": 120,
}
# Tests that cannot pass over QUIC.
ONLY_TCP = [
    # They choose older dialects than 3.1.1 themselves.
    "bind_negative_smb2*",
    "bind_negative_smb3*",
    "bug14788.*",
    # Pipes are refused.
    "*ipc_max*",
    # The addresses of the server's network are not told, and this test does not know an empty list.
    "network_interface_info",
    # They want the end of a connection of TCP, which Samba's client knows by another status.
    "anon-encryption1",
    "anon-encryption3",
]


def over_quic(server):
    """Returns the arguments for QUIC of Samba's programs, which trust the server's own certificate."""
    options = [
        f"client smb transports=quic:{PORT}",
        "tls verify peer=ca_only",
        f"tls cafile={server.directory}/state/quic.crt",
    ]
    return [f"--option={o}" for o in options]


def program(ctx, name):
    """Returns the command of a program of Samba that finds the server by its name."""
    root = Path(newer_samba(SAMBA)).resolve()
    lib = root / "usr/lib" / f"{platform.machine()}-linux-gnu"
    loader = next((root / "usr/lib64").glob("ld-linux-*.so.2"))
    hosts = ctx.work / "hosts"
    hosts.write_text(f"{ctx.server.address} {NAME}\n")
    os.environ["NSS_WRAPPER_HOSTS"] = str(hosts)
    wrapper = lib / "libnss_wrapper.so"
    return [loader, "--preload", wrapper, "--library-path", f"{lib}:{lib}/samba", root / "usr/bin" / name]


def newest(ctx):
    if ctx.server.kind != "frevo":
        raise Skip("Samba's server needs a module of the kernel for QUIC")
    return [f"--option=client {end} protocol=SMB3_11" for end in ("min", "max")]


def smbclient(ctx, *script, where=None, options=None):
    server = ctx.server
    command = [*program(ctx, "smbclient"), where or f"//{NAME}/{server.share}"]
    command += ["-U", f"{server.user}%{server.password}", *(over_quic(server) if options is None else options)]
    return ctx.command(*command, *(["-c", "; ".join(script)] if script else []), timeout=120)


@group("quic/smbclient", profile="quic", samba=SAMBA, full_only=True)
def with_smbclient(ctx):
    """smbclient over QUIC: files both ways, refused pipes, certificates"""
    newest(ctx)
    source, back = ctx.work / "source", ctx.work / "back"
    source.write_bytes(bytes(n % 251 for n in range(20 << 20)))
    with ctx.check("put-get-ls"):
        status, output = smbclient(ctx, f"put {source} file", "ls", f"get file {back}")
        if status or " file " not in output:
            raise Failure(output.strip()[-200:])
        if back.read_bytes() != source.read_bytes() or (ctx.server.path / "file").read_bytes() != source.read_bytes():
            raise Failure("the bytes differ")
    with ctx.check("pipes"):
        # The list of shares comes by a pipe.
        _, output = smbclient(ctx, where=f"--list={NAME}")
        if "Sharename" not in output or "Disk" in output:
            raise Failure(f"pipes are not refused: {output.strip()[-200:]}")
    with ctx.check("untrusted"):
        options = [o for o in over_quic(ctx.server) if "cafile" not in o]
        status, output = smbclient(ctx, "ls", options=options)
        if not status:
            raise Failure("an unknown certificate was trusted")
    with ctx.check("encrypted-by-smb-too"):
        options = [*over_quic(ctx.server), "--client-protection=encrypt"]
        status, output = smbclient(ctx, "ls", options=options)
        if status:
            raise Failure(output.strip()[-200:])


def register(suite, seconds):
    def run(ctx):
        dialect = newest(ctx)
        tests = listing(ctx, suite)
        tcp = torture(ctx, suite, seconds, more=dialect)
        ctx.server.clear()
        more = [*dialect, *over_quic(ctx.server)]
        udp = torture(ctx, suite, seconds, more=more, at=(program(ctx, "smbtorture"), NAME))
        if not any(result[0] == "success" for result in tcp.values()):
            raise Failure(f"nothing of {suite} passes over TCP")
        # A test counts if it passes over TCP.
        for test in tests:
            names = {test, short_name(suite, test), test.rsplit(".", 1)[-1]}
            passed = any(tcp.get(name, [""])[0] == "success" for name in names)
            is_possible = not any(fnmatch.fnmatchcase(short_name(suite, test), one) for one in ONLY_TCP)
            if passed and is_possible:
                rows(ctx, suite, [test], udp)

    run.__doc__ = f"{suite}: passes over QUIC what passes over TCP"
    group(f"quic/{suite.removeprefix('smb2.')}", profile="quic", samba=SAMBA, full_only=True)(run)


for one, limit in SUITES.items():
    register(one, limit)
