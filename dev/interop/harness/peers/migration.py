"""The rights that an smb.conf gives with smbd, and with Frevo after `frevo import`."""

import re

from ..model import HERE, group
from ..prepare import VENV

PEERS = HERE / "peers"


@group("import/rights", beside=15, seconds=15)
def rights(ctx):
    """Option sets of 16 smb.conf files, and the stock files of distributions: five users, nine actions."""
    if ctx.server.kind != "frevo":
        return
    text = (PEERS / "rights_sets.py").read_text()
    sets = re.findall(r'^    "([a-z]+)": \(', text.split("GLOBAL =")[0], re.M)
    needed = [*sets, "stock-debian", "stock-rhel", "stock-suse", "table-is-used"]
    peer = ["unshare", "--mount", "--propagation", "private", VENV / "bin/python", PEERS / "rights_table_peer.py"]
    _, output = ctx.command(*peer, ctx.server.program, timeout=400)
    ctx.report(output, needed=needed)
