"""One folder served by smbd and Frevo in turn: each must show what the other wrote."""

import contextlib
import json
import subprocess

from ..model import HERE, Failure, group
from ..prepare import VENV
from ..servers import Server

FACETS = [
    "names",
    "data",
    "attributes",
    "creation-times",
    "write-times",
    "streams",
    "stream-data",
    "eas",
    "dacls",
    "owners",
]
WRITTEN = ["names", "attributes", "times", "streams", "eas", "dacls"]
CHANGED = ["names", "attributes", "streams", "eas", "dacls"]

# The address of the second server. The server under test has 198.18.0.1.
OTHER_ADDRESS = "198.18.1.1"


ACCOUNT_CHECKS = [
    "smbd-writes",
    "owner-has-its-name",
    "owner-writes",
    "lists-hold",
    "groups-of-the-host",
    "frevo-writes",
    "smbd-shows-the-names",
    "smbd-obeys",
]


@contextlib.contextmanager
def both(ctx):
    """Yields (the server under test, smbd), both serving one and the same folder as their share `torture`.

    Use them in turn: neither knows the other's open files. With --server smbd both are smbd.
    """
    other = Server("smbd", "crossing", address=OTHER_ADDRESS)
    # Frevo holds its share's folder by a handle. Mounting smbd's folder over it needs no restart,
    # and only this mount namespace sees it.
    subprocess.run(["mount", "--bind", ctx.server.path2, other.path2], check=True)
    try:
        yield ctx.server, other
    finally:
        subprocess.run(["umount", "-l", other.path2], check=True)
        other.stop()


def peer(ctx, server, what, *args, **more):
    """Runs crossing_peer.py against one server; returns (status, output)."""
    status, output = ctx.command(
        VENV / "bin/python",
        HERE / "peers/crossing_peer.py",
        what,
        *args,
        env={**server.environment(), "SMB_SHARE": "torture", **more},
        timeout=120,
    )
    return status, output


def facts(ctx, server, name, what="facts", **more):
    path = ctx.work / name
    status, output = peer(ctx, server, what, path, **more)
    if status or not path.exists():
        raise Failure(f"{server.kind} returned no facts: {output.strip()[-200:]}")
    return json.loads(path.read_text())


def compare(ctx, prefix, here, there):
    """Adds a row for each facet: both servers must describe the folder alike."""
    for facet in FACETS:
        with ctx.check(prefix + facet):
            ours, theirs = here()[facet], there()[facet]
            for name in sorted({*ours, *theirs}):
                a, b = ours.get(name), theirs.get(name)
                if a != b or str(a).startswith("error"):
                    raise Failure(f"{name!r}: written {str(a)[:110]}, shown {str(b)[:110]}")
            if not ours:
                raise Failure("nothing to compare")


def crossing(ctx, writer, reader):
    """`writer` fills the folder and `reader` shows it; then `reader` changes it and `writer` shows that."""
    done = {}

    def once(server, name):
        """Asks for the facts once, before anything else changes the folder."""
        if name not in done:
            try:
                done[name] = facts(ctx, server, name)
            except Failure as e:
                done[name] = e

        def answer():
            if isinstance(done[name], Failure):
                raise done[name]
            return done[name]

        return answer

    ctx.report(peer(ctx, writer, "write")[1], needed=["write-" + f for f in WRITTEN])
    compare(ctx, "", once(writer, "written"), once(reader, "shown"))
    ctx.report(peer(ctx, reader, "change")[1], needed=["change-" + f for f in CHANGED])
    compare(ctx, "changed-", once(reader, "changed"), once(writer, "shown-changed"))


def audited(ctx, writer, reader):
    """`writer` sets system access control lists; `reader` shows and changes them.  Root has the right on both."""
    names = ["audit-audited.txt", "audit-audited-folder"]
    ctx.report(peer(ctx, writer, "audit", SMB_USER="root")[1], needed=names)
    for prefix in ("", "changed-"):
        with ctx.check(prefix + "audits"):
            ours = facts(ctx, writer, prefix + "ours", "audits", SMB_USER="root")["audits"]
            theirs = facts(ctx, reader, prefix + "theirs", "audits", SMB_USER="root")["audits"]
            if ours != theirs or bool(ours["audited folder"]) == bool(prefix):
                raise Failure(f"{writer.kind}: {ours}, {reader.kind}: {theirs}")
        ctx.report(
            peer(ctx, reader, "unprivileged")[1].replace("unprivileged", prefix + "unprivileged"),
            needed=[prefix + "unprivileged"],
        )
        if not prefix:
            output = peer(ctx, reader, "reaudit", SMB_USER="root")[1]
            ctx.report(output.replace("audit-", "reaudit-"), needed=["re" + name for name in names])


# Each entry: name, check function, True if smbd writes first, description.
CROSSINGS = [
    ("from-smbd", crossing, True, "smbd fills a folder; the server under test shows and changes it."),
    ("to-smbd", crossing, False, "The server under test fills a folder; smbd shows and changes it."),
    ("audits-from-smbd", audited, True, "smbd sets audit lists; the server under test shows and changes them."),
    ("audits-to-smbd", audited, False, "The server under test sets audit lists; smbd shows and changes them."),
]

for _name, _check, _from_smbd, _text in CROSSINGS:

    @group(f"crossing/{_name}", profile="crossing", doc=_text)
    def _crossing(ctx, check=_check, from_smbd=_from_smbd):
        with both(ctx) as (server, smbd):
            check(ctx, *((smbd, server) if from_smbd else (server, smbd)))


for _name, _flags in (("as-root", []), ("as-user", ["-u"])):

    @group(f"crossing/accounts-{_name}")
    def _accounts(ctx, flags=_flags):
        """smbd writes a tree, its accounts are imported, Frevo serves the tree, smbd serves it again."""
        if ctx.server.kind != "frevo":
            return
        script = HERE / "peers/accounts-crossing"
        _, output = ctx.command(script, *flags, OTHER_ADDRESS, ctx.server.program, timeout=120)
        ctx.report(output, needed=ACCOUNT_CHECKS)
