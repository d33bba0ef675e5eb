"""cifs.ko over SMB Direct: the server and the mount in one guest, on a soft RDMA device.

Only a kernel with RDMA can do it: dev/interop/kernel/build makes one, or UML_KERNEL names one.
"""

import ctypes.util
import os
from pathlib import Path

from ..model import HERE, OUT, Failure, Skip, group, require_tool
from .ksmbd import built

TOOLS = OUT / "tools/bin"


def missing():
    """Returns the reason for which the group is skipped, and the kernel."""
    kernel = os.environ.get("UML_KERNEL") or OUT / "kernel/linux-6.12"
    if not Path(kernel).exists():
        return "no kernel with RDMA: dev/interop/kernel/build makes one, or UML_KERNEL names one", None
    if not ctypes.util.find_library("rdmacm"):
        return "librdmacm1 is not installed", None
    return None, kernel


def outside(ctx, kernel):
    """The environment of a script that boots guests: what it shares with them is not below /dev/shm, of which they
    have their own."""
    return {"UML_KERNEL": str(kernel), "TMPDIR": str(ctx.work)}


def mounted(ctx, transport):
    reason, kernel = missing()
    if reason:
        ctx.add("kernel", "skip", 0.0, reason)
        return
    report = ctx.work / "report"
    program = os.environ["FREVO_CLIENT"]
    boot = [HERE / "linux-client", "-M", "-k", kernel, "-m", "1024M", "-t", "900"]
    checks = [HERE / "guest-rdma", transport, report, program, TOOLS, 2000, 20_000]
    ctx.command(*boot, "--", *checks, timeout=930)
    for path in (report, Path(f"{report}.run"), Path(f"{report}.verify")):
        ctx.report(path.read_text() if path.exists() else "", needed=["quiet", "users-quiet"] if path == report else [])


for _transport in ("rxe", "siw"):

    @group(f"rdma/{_transport}", full_only=True)
    def _rdma(ctx, transport=_transport):
        """mount -o rdma over soft RoCE or soft iWARP: sizes, frevo-guest-checks, a tree, fsx, signed and sealed;
        with `run_as = "user"` two users of Frevo's client on one core."""
        mounted(ctx, transport)


def faults(ctx, transport):
    reason, kernel = missing()
    if reason:
        ctx.add("kernel", "skip", 0.0, reason)
        return
    command = [HERE / "rdma-faults", transport, os.environ["FREVO_CLIENT"]]
    _, output = ctx.command(*command, timeout=2000, env=outside(ctx, kernel))
    ctx.report(output, needed=["quiet"])


for _transport in ("rxe", "siw"):

    @group(f"rdma/faults-{_transport}", full_only=True, seconds=900)
    def _faults(ctx, transport=_transport):
        """Frevo's client over SMB Direct while the server is killed, the link is down and RDMA does not work."""
        faults(ctx, transport)


def captured(ctx, transport):
    reason, kernel = missing()
    with ctx.check("dissected"):
        if reason:
            raise Skip(reason)
        require_tool("tshark")
        require_tool("tcpdump")
        command = [HERE / "rdma-capture", transport, os.environ["FREVO_CLIENT"]]
        status, output = ctx.command(*command, timeout=300, env=outside(ctx, kernel))
        if status:
            raise Failure(f"status {status}: {output.strip()[-250:]}")


for _transport in ("rxe", "siw"):

    @group(f"rdma/capture-{_transport}", full_only=True)
    def _capture(ctx, transport=_transport):
        """tshark reads Frevo's SMB Direct over soft RoCE or soft iWARP: no malformed packet."""
        captured(ctx, transport)


def of_ksmbd(ctx, transport):
    reason, _ = missing()
    kernel, tools, none = built()
    if reason or none:
        ctx.add("kernel", "skip", 0.0, reason or none)
        return
    report = ctx.work / "report"
    boot = [HERE / "linux-client", "-M", "-k", kernel, "-m", "1024M", "-t", "450"]
    checks = [HERE / "guest-rdma-ksmbd", transport, report, os.environ["FREVO_CLIENT"], tools]
    ctx.command(*boot, "--", *checks, timeout=480)
    ctx.report(report.read_text() if report.exists() else "", needed=["sync-sealed"])


for _transport in ("rxe", "siw"):

    @group(f"rdma/ksmbd-{_transport}", full_only=True)
    def _of_ksmbd(ctx, transport=_transport):
        """Frevo's client against ksmbd by SMB Direct: unprotected, signed and sealed."""
        of_ksmbd(ctx, transport)
