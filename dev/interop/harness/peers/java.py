"""Java clients: smbj and jcifs-ng, each driven by a small program."""

from .. import suites
from ..model import group
from .clients import left_behind
from .test_suites import version

SMBJ = [
    "dialect",
    "write-read",
    "append",
    "copy-by-server",
    "set-length",
    "rename-and-link",
    "delete-on-close",
    "list",
    "stat-and-times",
    "security",
    "space",
    "watch",
    "share-modes",
    "wrong-password",
]
JCIFS = [
    "write-read",
    "append",
    "random-access",
    "copy",
    "rename",
    "list",
    "doubled-separators",
    "stat-and-times",
    "security",
    "list-shares",
    "space",
    "watch",
    "wrong-password",
]
VERSIONS = {"Smbj": "smbj 0.14.0", "Jcifs": "jcifs-ng 2.1.10"}


def java(ctx, client, how, needed):
    """Runs the program of a client; its lines become rows."""
    if not (suites.JAVA / "classes").exists():
        ctx.add("java", "skip", 0.0, "mvn or javac is missing")
        return
    version(ctx, VERSIONS[client])
    path = f"{suites.JAVA}/classes:{suites.JAVA}/jars/*"
    _, output = ctx.command("java", "-cp", path, f"{client}Peer", how, timeout=240)
    ctx.report(output, needed=needed)


# jcifs-ng cannot encrypt, so it has no sealed variant.
for _client, _how, _profile, _needed, _left in (
    ("Smbj", "signed", "default", SMBJ, "smbj.bin"),
    ("Smbj", "sealed", "as-shipped", SMBJ, "smbj.bin"),
    ("Jcifs", "signed", "default", JCIFS, "jcifs.bin"),
):

    @group(f"java/{_client.lower()}-{_how}", profile=_profile, full_only=True, doc=f"{VERSIONS[_client]}, {_how}")
    def _java(ctx, client=_client, how=_how, needed=_needed, left=_left):
        java(ctx, client, how, needed)
        if (suites.JAVA / "classes").exists():
            left_behind(ctx, left, 3_000_001)


@group("java/refused", profile="as-shipped", full_only=True)
def refused(ctx):
    """What programs show that do not encrypt, on a server that requires it."""
    java(ctx, "Smbj", "refused", ["shows-without-encryption"])
    java(
        ctx,
        "Jcifs",
        "refused",
        [f"shows-{how}-encryption" for how in ("SMB210-without", "SMB311-without", "SMB311-with")],
    )
