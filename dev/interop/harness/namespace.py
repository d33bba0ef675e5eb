"""Namespaces of DFS over several servers, each server at an address of its own on tap0."""

import contextlib
import json
import os
import subprocess
from pathlib import Path

from . import trees
from .servers import Server

# The share that is the root of a namespace, and the root's address.
ROOT_SHARE, ROOT = "dfs", "198.18.0.40"
# Addresses of the other servers.
SECOND, THIRD, SMBD = "198.18.0.41", "198.18.0.42", "198.18.0.43"
# A name in /etc/hosts for the second server: clients, and the guest's resolver, look it up.
SECOND_NAME = "nas2"


def toml(name, links, ttl=300):
    """Returns the lines of a namespace for frevo.toml; `links` are {path: [target, ...]} or {path: {key: value}}."""
    lines = ["[[namespace]]", f"name = {json.dumps(name, ensure_ascii=False)}", f"ttl = {ttl}"]
    for path, link in links.items():
        keys = link if isinstance(link, dict) else {"targets": link}
        lines += ["[[namespace.link]]", f"path = {json.dumps(path, ensure_ascii=False)}"]
        for key, value in keys.items():
            lines.append(f"{key} = {inline(value)}")
    return lines


def inline(value):
    """Returns a value as TOML in one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {inline(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def addresses(*these):
    """Gives tap0 these addresses."""
    for address in these:
        subprocess.run(["ip", "addr", "replace", f"{address}/24", "dev", "tap0"], check=True)


@contextlib.contextmanager
def named(ctx, names):
    """Puts {name: address} into /etc/hosts, as this worker and its guests see it."""
    hosts = ctx.work / "hosts"
    lines = "".join(f"{address} {name}\n" for name, address in names.items())
    hosts.write_text(Path("/etc/hosts").read_text() + lines)
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "/etc/hosts"], check=True)


def frevo(address, *, share=True, namespaces=(), profile="default", ttl=300):
    """Starts Frevo with these namespaces, [(name, links)]; `share` makes the share that is the root of `dfs`."""
    more = ["-m", ROOT_SHARE] if share else []
    for name, links in namespaces:
        # Each line is an argument: one argument has at most 128 KiB.
        more += [word for line in toml(name, links, ttl) for word in ("-c", line)]
    return Server("frevo", profile, os.environ["FREVO_CLIENT"], address=address, more=more)


def root(ctx, links, profile="default"):
    """Starts the server under test as the root of a namespace with these links, at ROOT."""
    addresses(ROOT)
    if ctx.server.kind == "frevo":
        return frevo(ROOT, namespaces=[(ROOT_SHARE, links)], profile=profile)
    server = Server("smbd", profile, address=ROOT, samba=ctx.server.samba)
    for path, link in links.items():
        targets = link["targets"] if isinstance(link, dict) else link
        place = server.directory / ROOT_SHARE / path.replace("\\", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to("msdfs:" + ",".join(target.strip("\\") for target in targets))
    return server


def process_of(server):
    """Returns the process of a server that this worker has started."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            program = os.path.basename(words[0])
            if program in (b"frevo", b"smbd") and any(os.fsencode(server.directory) in word for word in words):
                return int(entry.name)
    raise RuntimeError(f"no process serves {server.directory}")


def digest_of(places):
    """Returns trees.digest of a namespace: {path of a folder or link: folder of the disk behind it, or None}."""
    found = {}
    for path, folder in places.items():
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            found[os.fsencode("/".join(parts[:depth]))] = "dir"
        if folder:
            found |= {os.fsencode(path) + b"/" + name: text for name, text in trees.digest(folder).items()}
    return found
