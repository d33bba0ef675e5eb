"""cifs.ko over SMB Direct: the server and the mount in one guest, on a soft RDMA device.

Only a kernel with RDMA can do it: dev/interop/kernel/build makes one, or UML_KERNEL names one.
"""

import ctypes.util
import os
from pathlib import Path

from ..model import HERE, OUT, group

TOOLS = OUT / "tools/bin"


def missing():
    """Returns the reason for which the group is skipped, and the kernel."""
    kernel = os.environ.get("UML_KERNEL") or OUT / "kernel/linux-6.12"
    if not Path(kernel).exists():
        return "no kernel with RDMA: dev/interop/kernel/build makes one, or UML_KERNEL names one", None
    if not ctypes.util.find_library("rdmacm"):
        return "librdmacm1 is not installed", None
    return None, kernel


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
        ctx.report(path.read_text() if path.exists() else "", needed=["quiet"] if path == report else [])


for _transport in ("rxe", "siw"):

    @group(f"rdma/{_transport}", full_only=True)
    def _rdma(ctx, transport=_transport):
        """mount -o rdma over soft RoCE or soft iWARP: sizes, frevo-guest-checks, a tree, fsx, signed and sealed."""
        mounted(ctx, transport)
