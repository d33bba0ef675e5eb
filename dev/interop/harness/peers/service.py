"""The unit that is shipped for systemd, in a container with a systemd of its own."""

import re

from ..model import HERE, ROOT, Failure, group, require_tool

CHECKS = [
    "starts",
    "confined",
    "serves",
    "denies",
    "audit-journald",
    "audit-syslog",
    "reloads",
    "reload-fails",
    "as-user",
    "stops",
    "audit-syslogd",
    "comes-back",
    "upgrades",
    "node",
    "no-call-is-refused",
    "wrong-configuration",
]
# The largest exposure that `systemd-analyze security` may report, from 0 (safe) to 10. The unit
# needs port 445, files of any owner and the network, which give 3.0.
EXPOSURE_MAX = 3.0


@group("service/systemd")
def systemd(ctx):
    """contrib/frevo.service: confined start, files, journal and syslog, reload, crash, stop."""
    with ctx.check("security"):
        analyze = require_tool("systemd-analyze")
        _, output = ctx.command(analyze, "security", "--offline=yes", "--no-pager", ROOT / "contrib/frevo.service")
        exposure = re.search(r"Overall exposure level for frevo.service: ([0-9.]+)", output)
        if not exposure or float(exposure[1]) > EXPOSURE_MAX:
            raise Failure(f"exposure {exposure[1] if exposure else 'unknown'}, at most {EXPOSURE_MAX} is wanted")
    if ctx.server.kind != "frevo":
        return
    checks = (HERE / "peers/service-checks").read_text()
    _, output = ctx.command(
        HERE / "with-systemd", "-t", "100", "-b", ctx.server.program, "--", "bash", "-c", checks, timeout=120
    )
    ctx.report(output, needed=CHECKS)
