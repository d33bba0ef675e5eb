"""pike's own tests of the protocol: a row per test."""

from ..model import HERE, group, selects
from ..prepare import PIKE

# Each module with the seconds that it takes on Frevo, or on smbd if smbd is slower.
MODULES = {
    "acl": 1,
    "appinstanceid": 1,
    "changenotify": 1,
    "compound": 1,
    "copychunk": 20,
    "credit": 70,
    "durable": 95,
    "echo": 1,
    "encryption": 5,
    "invalid_session": 1,
    "invalid_tree": 60,
    "ioctl": 1,
    "lease": 3,
    "lock": 1,
    "multichannel": 1,
    "negotiate": 1,
    "oplock": 1,
    "persistent": 150,
    "query": 1,
    "querydirectory": 1,
    "queryondiskid": 1,
    "readwrite": 1,
    "reparse": 1,
    "session": 1,
    "set": 1,
    "tree": 1,
}


# These modules need a continuously available share.
CONTINUOUS = {"appinstanceid", "negotiate", "persistent"}


def run_module(ctx, module):
    server = ctx.server
    share = "continuous" if module in CONTINUOUS else "torture"
    env = {
        "PIKE_SERVER": server.address,
        "PIKE_PORT": str(server.port),
        "PIKE_SHARE": share,
        "PIKE_CREDS": f"\\{server.user}%{server.password}",
    }
    python, peer = PIKE / "bin/python", HERE / "peers/pike_peer.py"
    _, listing = ctx.command(python, peer, "--list", module, env=env)
    names = [n for n in listing.split() if selects(ctx.patterns, f"{ctx.group.name}/{n}")]
    if not names:
        ctx.add("list", "fail", 0.0, listing.strip()[-200:])
        return
    output = ctx.command(python, peer, module, *names, env=env, timeout=400)[1]
    ctx.report(output, needed=names)


for _module, _seconds in MODULES.items():

    @group(f"pike/{_module}", profile="torture", beside=_seconds)
    def _(ctx, module=_module):
        """The module of pike.test with this name."""
        run_module(ctx, module)
