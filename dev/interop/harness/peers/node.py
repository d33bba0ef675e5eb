"""Clients of npm in JavaScript, each driven by peers/node/peer.js."""

import json

from .. import suites
from ..model import HERE, Skip, group
from .clients import left_behind
from .test_suites import version

NODE = HERE / "peers/node"
VERSIONS = json.loads((NODE / "package.json").read_text())["dependencies"]
CHECKS = [
    "login",
    "write-read",
    "empty",
    "list",
    "folders",
    "rename",
    "exists",
    "absent",
    "not-empty",
    "left",
    "wrong-password",
]
# The checks of one package alone: the others lack it.
MORE = {"v9u-smb2": ["truncate"], "node-smb2": ["streams", "watch"]}
# These packages prove a password by NTLM version 1 only, so each server here refuses them.
VERSION_1 = {"@marsaud/smb2", "@awo00/smb2"}


def environment():
    # NTLM version 1 needs DES, which is in the legacy provider.
    options = "--openssl-legacy-provider --no-deprecation"
    return {"NODE_PATH": str(suites.NODE / "node_modules"), "NODE_OPTIONS": options}


def refused(ctx, package):
    """Runs a package whose logon the server must refuse."""
    _, output = ctx.command("node", NODE / "peer.js", package, "refused", env=environment(), timeout=60)
    ctx.report(output, needed=["refused"])


def client(ctx, package):
    """Runs the checks of a package; its lines become rows."""
    if not (suites.NODE / ".frevo-stamp").exists():
        raise Skip("npm or node is missing, or npm's registry did not answer")
    version(ctx, f"{package} {VERSIONS[package]}")
    if package in VERSION_1:
        refused(ctx, package)
        return
    _, output = ctx.command("node", NODE / "peer.js", package, env=environment(), timeout=240)
    ctx.report(output, needed=[*CHECKS, *MORE[package]])
    left_behind(ctx, f"left by {package}.bin", 3_000_001)


for _package in VERSIONS:

    @group(f"npm/{_package.strip('@').replace('/', '-')}", profile="old-dialects", doc=f"{_package} of npm")
    def _client(ctx, package=_package):
        client(ctx, package)
