"""Referrals beside those of smbd, byte for byte: random namespaces and requests."""

import fnmatch
import json
import os
import random
import tomllib

from .. import namespace
from ..model import HERE, Failure, group
from ..namespace import ROOT, SMBD
from ..prepare import VENV
from ..servers import Server

# The seed, and the counts of requests and of namespaces.
SEED, REQUESTS, NAMESPACES = 1, 2_000, 40


def listed():
    """Reads the known differences, [(pattern, reason)]."""
    with open(HERE / "differences-dfs.toml", "rb") as f:
        entries = tomllib.load(f)["difference"]
    return [(name, entry["why"]) for entry in entries for name in entry["name"]]


def made(choose):
    """Returns random namespaces: {name: {link: [target, ...]}}."""
    words = ["red", "Blue", "grün", "日本", "🗂️", "two words", "x.y", "a" * 60, "[b]", "é", "UPPER"]
    found = {}
    for n in range(NAMESPACES):
        links = {}
        for m in range(choose.randrange(1, 12)):
            folders = choose.choices(words, k=choose.choice([0, 0, 1, 2, 5]))
            path = "\\".join(
                [*(f"{folder} {choose.randrange(3)}" for folder in folders), f"{choose.choice(words)} l{m}"]
            )
            hosts = choose.sample(
                ["nas1", "nas2.example.com", "192.0.2.1", "192.0.2.2", "files"], choose.choice([1, 1, 2, 5])
            )
            folder = choose.choice(["", "\\below", "\\a\\Ä b\\日本"])
            links[path] = [f"\\\\{host}\\share{folder}" for host in hosts]
        found[f"{choose.choice(['space', 'Größe', 'N'])}{n}"] = links
    return found


def as_configured(links):
    """Returns the links in the order of their targets: in no site, none before another by chance."""

    def link(targets):
        ranked = [{"path": target, "rank": rank} for rank, target in enumerate(targets)]
        return {"targets": ranked, "ordering": "priority", "ttl": 600}

    return {path: link(targets) for path, targets in links.items()}


def smbd(namespaces, samba):
    """Starts smbd with these namespaces: each share is a root, with its links as symbolic links."""
    namespace.addresses(SMBD)
    more = ["-s", "msdfs root = yes"] + [word for name in namespaces for word in ("-m", name)]
    server = Server("smbd", "default", address=SMBD, samba=samba, more=more)
    for name, links in namespaces.items():
        for path, targets in links.items():
            place = server.directory / name / path.replace("\\", "/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to("msdfs:" + ",".join(target.strip("\\") for target in targets))
    return server


@group("dfs/smbd", full_only=True)
def referrals(ctx):
    """2,000 requests for referrals to Frevo and smbd with the same namespaces: equal bytes, or a listed difference."""
    seed = int(os.environ.get("DFS_SEED", SEED))
    wanted = int(os.environ.get("DFS_REQUESTS", REQUESTS))
    namespaces = made(random.Random(seed))
    names, out = ctx.work / "namespaces.json", ctx.work / "differences.json"
    names.write_text(json.dumps(namespaces))
    namespace.addresses(ROOT)
    spaces = [(name, as_configured(links)) for name, links in namespaces.items()]
    # smbd has 600 seconds for everything.
    frevo = namespace.frevo(ROOT, share=False, namespaces=spaces, ttl=600)
    found = None
    try:
        other = smbd(namespaces, ctx.server.samba)
        try:
            with ctx.check("compared"):
                program = [VENV / "bin/python", HERE / "peers/dfs_referrals_peer.py", ROOT, SMBD]
                status, output = ctx.command(*program, names, seed, wanted, out, timeout=300)
                if status:
                    raise Failure(f"status {status}: {output.strip()[-250:]}")
                found = json.loads(out.read_text())
                if found["answered"] < wanted // 2:
                    raise Failure(f"only {found['answered']} of {wanted} requests got a referral")
        finally:
            other.stop()
    finally:
        frevo.stop()
    if not found:
        return
    ctx.log.write(f"seed {seed}: {found['equal']} of {found['requests']} answers are equal\n")
    known = listed()
    for name, (count, example) in sorted(found["differences"].items()):
        reason = next((why for pattern, why in known if fnmatch.fnmatchcase(name, pattern)), None)
        ctx.log.write(f"{count} x {name}{'' if reason else ' (not listed)'}\n    {example}\n")
        if not reason:
            ctx.add(name.replace("/", "|"), "fail", 0.0, f"{count} times; {example}")
