"""Shares that are scanned for viruses by Debian's clamd and c-icap; smbd with vfs_virusfilter is the reference."""

import contextlib
import socket
import subprocess
import time

from ..model import ROOT, Failure, group
from .smbclient import Smbclient, holding

# The file by which scanners are tried, in two parts, so that no scanner finds it here.
EICAR = "X5O!P%@AP[4\\PZX54(P^)7CC)7}$EICAR" + "-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"
# Ports of clamd and of c-icap, as the profile names them.
CLAMD, ICAP = 3310, 1344
# Seconds for a scanner to start.
PATIENCE = 20


def await_port(address, port, child):
    """Waits until a program listens."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and child.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
            return
        time.sleep(0.1)
    raise Failure(f"nothing listens at port {port}")


@contextlib.contextmanager
def running(ctx, *command):
    """Runs a program in the foreground."""
    child = subprocess.Popen([*map(str, command)], stdout=ctx.log, stderr=ctx.log, stdin=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(10)
        if child.poll() is None:
            child.kill()


def clamd_settings(ctx):
    """Writes the settings of clamd, with a signature of its own in place of Debian's 250 MB; returns their file."""
    there = ctx.server.directory
    signatures = there / "signatures"
    signatures.mkdir(exist_ok=True)
    (signatures / "own.ndb").write_text(f"Eicar-Test:0:*:{EICAR.encode().hex()}\n")
    settings = there / "clamd.conf"
    settings.write_text(
        f"LocalSocket {there}/clamd.ctl\nTCPSocket {CLAMD}\nTCPAddr {ctx.server.address}\n"
        f"DatabaseDirectory {signatures}\nForeground yes\nUser root\nTemporaryDirectory {ctx.work}\n"
    )
    return settings


def icap_settings(ctx):
    """Writes the settings of c-icap with its service virus_scan, which asks the same clamd; returns their file."""
    there = ctx.server.directory
    modules = next(iter(sorted(ROOT.__class__("/usr/lib").glob("*/c_icap"))), None)
    if not modules:
        raise Failure("c-icap has no modules")
    settings = there / "c-icap.conf"
    settings.write_text(
        f"PidFile {there}/c-icap.pid\nCommandsSocket {there}/c-icap.ctl\nPort {ctx.server.address}:{ICAP}\n"
        f"TmpDir {ctx.work}\nModulesDir {modules}\nServicesDir {modules}\nTemplateDir /usr/share/c_icap/templates/\n"
        f"LoadMagicFile /etc/c-icap/c-icap.magic\nServerLog {there}/c-icap.log\nAccessLog {there}/c-icap-access.log\n"
        "Service echo srv_echo.so\nService antivirus virus_scan.so\nModule common clamd_mod.so\n"
        f"clamd_mod.ClamdSocket {there}/clamd.ctl\nvirus_scan.ScanFileTypes TEXT DATA EXECUTABLE ARCHIVE\n"
        "virus_scan.SendPercentData 0\nvirus_scan.PassOnError off\nvirus_scan.MaxObjectSize 50M\n"
    )
    return settings


@group("scanning/clamd", profile="scanning", full_only=True)
def clamd(ctx):
    """A file with a virus is not read: put by a client or by the host; quarantine and new names."""
    subprocess.run([ROOT / "dev/install", "clamav-daemon"], check=True, stdout=ctx.log, stderr=ctx.log)
    client, there = Smbclient(ctx, holding("SMB3_11", "SMB3_11")), ctx.server.directory
    is_frevo = ctx.server.kind == "frevo"
    # smbd tells no virus from a missing right.
    infected = "NT_STATUS_VIRUS_INFECTED" if is_frevo else "NT_STATUS_ACCESS_DENIED"
    bad, good = ctx.work / "bad", ctx.work / "good"
    bad.write_text(EICAR)
    good.write_text("good")
    with ctx.check("without-service"):
        (there / "inbox/before").write_text("nobody scans yet")
        client.refused("NT_STATUS_ACCESS_DENIED", "get before -", share="inbox")
    with running(ctx, "clamd", "--config-file", clamd_settings(ctx)) as child:
        await_port(ctx.server.address, CLAMD, child)
        # The service counts as out of reach for two seconds.
        time.sleep(2.5)
        with ctx.check("clean"):
            client.run(f'put "{good}" good', "get good -", "get before -", share="inbox")
        with ctx.check("put"):
            client.run(f'put "{bad}" bad', share="inbox")
            client.refused(infected, "get bad -", share="inbox")
        with ctx.check("host"):
            (there / "inbox/good").write_text(EICAR)
            client.refused(infected, "get good -", share="inbox")
            (there / "inbox/good").write_text("good again")
            client.run("get good -", share="inbox")
        with ctx.check("attributes"):
            client.run("allinfo bad", "rename bad worse", share="inbox")
            client.refused(infected, "get worse -", share="inbox")
        with ctx.check("delete"):
            client.run("del worse", share="inbox")
        with ctx.check("rename"):
            (there / "renamed/bad").write_text(EICAR)
            client.refused(infected, "get bad -", share="renamed")
            found = sorted(path.name for path in (there / "renamed").iterdir())
            if len(found) != 1 or not found[0].endswith("bad.infected"):
                raise Failure(f"the share has {found}")
        with ctx.check("quarantine"):
            (there / "moved/bad").write_text(EICAR)
            client.refused(infected, "get bad -", share="moved")
            kept = [path.read_text() for path in (there / "quarantine").rglob("*") if path.is_file()]
            if (there / "moved/bad").exists() or kept != [EICAR]:
                raise Failure(f"the quarantine has {len(kept)} files")
        with ctx.check("large"):
            # 30 MB: Frevo sends them as a stream, smbd has clamd open the file.
            (there / "inbox/large").write_bytes(bytes(20_000_000) + EICAR.encode() + bytes(10_000_000))
            client.refused(infected, "get large -", share="inbox")


@group("scanning/icap", profile="scanning", full_only=True)
def icap(ctx):
    """c-icap's virus_scan with clamd behind it: with a preview, which it asks for."""
    subprocess.run(
        [ROOT / "dev/install", "clamav-daemon", "c-icap", "libc-icap-mod-virus-scan"],
        check=True,
        stdout=ctx.log,
        stderr=ctx.log,
    )
    client, there = Smbclient(ctx, holding("SMB3_11", "SMB3_11")), ctx.server.directory
    infected = "NT_STATUS_VIRUS_INFECTED" if ctx.server.kind == "frevo" else "NT_STATUS_ACCESS_DENIED"
    with contextlib.ExitStack() as stack:
        scanner = stack.enter_context(running(ctx, "clamd", "--config-file", clamd_settings(ctx)))
        await_port(ctx.server.address, CLAMD, scanner)
        # c-icap lets all files pass if clamd does not run when it starts.
        service = stack.enter_context(running(ctx, "c-icap", "-N", "-f", icap_settings(ctx)))
        await_port(ctx.server.address, ICAP, service)
        contents = {
            "small": "good",
            "long": "x" * 3_000_000,
            "bad": EICAR,
            "bad-late": "x" * 200_000 + EICAR,
        }
        for name, content in contents.items():
            with ctx.check(name):
                (there / "icap" / name).write_text(content)
                if name.startswith("bad"):
                    client.refused(infected, f"get {name} -", share="icap")
                else:
                    client.run(f'get {name} "{ctx.work}/{name}"', share="icap")
