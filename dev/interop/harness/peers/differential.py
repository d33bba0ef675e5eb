"""The same requests to the server under test and to smbd, compared answer by answer."""

import fnmatch
import json
import os
import tomllib

from ..model import HERE, Failure, group
from ..prepare import VENV
from ..servers import Server
from .crossing import OTHER_ADDRESS

# The random seed and the number of requests in a quick run and in a full run. A full run meets
# every listed difference.
SEED, QUICK, FULL = 1, 6_000, 30_000


def listed(samba):
    """Reads the known differences from this release, [(name, reason)]."""
    with open(HERE / "differences.toml", "rb") as f:
        entries = tomllib.load(f).get("difference", [])
    for entry in entries:
        if set(entry) - {"samba"} != {"name", "why"} or not entry["why"]:
            raise SystemExit(f"differences.toml: {entry} needs name and why")
    return [(name, e["why"]) for e in entries if e.get("samba", samba) == samba for name in names(e)]


def names(entry):
    """Returns the names that one entry lists."""
    return entry["name"] if isinstance(entry["name"], list) else [entry["name"]]


@group("differential/requests", profile="torture")
def requests(ctx):
    """Seeded requests to Frevo and smbd (6,000; --full 30,000): equal statuses and contents, or a listed difference."""
    wanted = int(os.environ.get("DIFFERENTIAL_REQUESTS", FULL if ctx.full else QUICK))
    seed = int(os.environ.get("DIFFERENTIAL_SEED", SEED))
    samba = ctx.server.samba
    out = ctx.work / "differences.json"
    known, found = listed(samba), None
    with ctx.check("compared"):
        other = Server("smbd", "torture", address=OTHER_ADDRESS, samba=samba)
        try:
            status, output = ctx.command(
                VENV / "bin/python",
                HERE / "peers/differential_peer.py",
                ctx.server.address,
                other.address,
                "torture",
                seed,
                wanted,
                out,
                timeout=max(900, wanted // 20),
            )
        finally:
            other.stop()
        if status:
            raise Failure(f"status {status}: {output.strip()[-250:]}")
        found = json.loads(out.read_text())
        if found["requests"] < wanted:
            raise Failure(f"only {found['requests']} of {wanted} requests")
    if not found:
        return
    for name, (count, example) in found["differences"].items():
        ctx.log.write(f"{count} x {name}\n    {example}\n")
    met = set()
    for name, (count, example) in found["differences"].items():
        entry = next((pattern for pattern, _ in known if fnmatch.fnmatchcase(name, pattern)), None)
        met.add(entry)
        if entry is None and ctx.server.kind == "frevo":
            ctx.add(name.replace("/", "|"), "fail", 0.0, f"{count} times; {example}")
    # A shorter run does not meet every listed difference.
    if wanted < FULL or samba:
        return
    with ctx.check("all-listed-differ"):
        gone = [pattern for pattern, _ in known if pattern not in met]
        if gone and ctx.server.kind == "frevo":
            raise Failure(f"listed differences that did not occur: {gone}")
