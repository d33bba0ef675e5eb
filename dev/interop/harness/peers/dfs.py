"""A namespace of 1,000 links over several servers, walked by every client: the tree is that of the servers' disks."""

import contextlib
import json
import os

from .. import namespace, suites, trees
from ..model import HERE, Failure, Skip, group, selects
from ..namespace import ROOT, ROOT_SHARE, SECOND, SECOND_NAME, SMBD, THIRD
from ..prepare import VENV
from ..servers import Server
from .cifs import guest
from .mount.fixture import mounted, no_fuse

LINKS, DEPTH = 1000, 16
FOLDERS = [
    "one",
    "Two Words",
    "drei äöü",
    "四",
    "FIVE",
    "six.six",
    "sieben",
    "8",
    "neun",
    "ten",
    "Ἕνδεκα",
    "12",
    "[13]",
    "vierzehn",
    "fif'teen",
    "sixteen",
]


class World:
    """The servers of the namespace, and the tree that its clients must see."""

    def __init__(self, ctx, stack):
        namespace.addresses(SECOND, THIRD, SMBD)
        elsewhere = {"below\\far": [f"\\\\{THIRD}\\share\\inter 1"], "far": [f"\\\\{SMBD}\\share\\inter 2"]}
        second = namespace.frevo(SECOND, share=False, namespaces=[("more", elsewhere)])
        stack.callback(second.stop)
        third = namespace.frevo(THIRD, share=False)
        stack.callback(third.stop)
        smbd = Server("smbd", "default", address=SMBD)
        stack.callback(smbd.stop)
        self.smbd = smbd
        self.places, links = {}, {}
        for n in range(LINKS):
            level = n * DEPTH // LINKS
            server, host = self.chosen(ctx.server, second, third, n)
            self.small_tree(server.path / f"t {n}", n)
            path = "\\".join(["tree", *FOLDERS[: level + 1], self.link_name(n)])
            links[path] = [f"\\\\{host}\\share\\t {n}"]
            self.places[path.replace("\\", "/")] = server.path / f"t {n}"
        self.small_tree(third.path / "inter 1", 1)
        self.small_tree(smbd.path / "inter 2", 2)
        links["inter\\root"] = {"targets": [f"\\\\{SECOND}\\more"], "interlink": True}
        links["deep\\folder"] = {"targets": [f"\\\\{SECOND}\\more\\below"], "interlink": True}
        self.small_tree(third.path / "astral", 3)
        links["astral\\🗂️\\link"] = [f"\\\\{THIRD}\\share\\astral"]
        astral = {"astral/🗂️/link": third.path / "astral"}
        inter = {
            "inter/root": None,
            "inter/root/below/far": third.path / "inter 1",
            "inter/root/far": smbd.path / "inter 2",
            "deep/folder": None,
            "deep/folder/far": third.path / "inter 1",
        }
        self.root = namespace.root(ctx, links)
        stack.callback(self.root.stop)
        # Files of the root's own share, beside links.
        beside = {}
        for depth in range(1, 4):
            folder = self.root.directory / ROOT_SHARE / "/".join(["tree", *FOLDERS[:depth]])
            folder.mkdir(parents=True, exist_ok=True)
            trees.fill(folder / "beside", 1000 * depth, depth)
            alone = ctx.work / f"beside {depth}"
            alone.mkdir()
            trees.fill(alone / "beside", 1000 * depth, depth)
            beside["/".join(["tree", *FOLDERS[:depth]])] = alone
        every = (self.places, inter, astral, beside)
        self.wanted = {name: text for places in every for name, text in namespace.digest_of(places).items()}

    def chosen(self, first, second, third, n):
        """Returns the server of link `n`, and the name that the link has for it."""
        if n % 20 == 7:
            return self.smbd, SMBD
        server = (first, second, third)[n % 3]
        name = SECOND_NAME if server is second and n % 2 else server.address
        return server, name

    @staticmethod
    def link_name(n):
        return ("link {}", "Ünïcode {}", "リンク {}", "UPPER {}", "x {} .d")[n % 5].format(n)

    @staticmethod
    def small_tree(folder, seed):
        (folder / "sub/deeper").mkdir(parents=True)
        trees.fill(folder / "file", seed % 7 * 1000, seed)
        trees.fill(folder / "sub/Größe", 10 + seed, seed + 1)
        trees.fill(folder / "sub/deeper/x", 5000, seed + 2)

    def same(self, found, part):
        """Fails unless `found` is the part of the tree below the folder `part`."""
        inside = os.fsencode(part) + b"/"
        trees.same_digest({name: text for name, text in self.wanted.items() if name.startswith(inside)}, found)

    def url(self, path=""):
        return f"smb://{self.root.user}@{ROOT}/{ROOT_SHARE}/{path}"

    def environment(self):
        return {"SMB_ADDR": ROOT, "SMB_SHARE": ROOT_SHARE, "FREVO_PASSWORD": self.root.password}


def below(part, found):
    """Returns what trees.digest says of the folder `part`, with names that begin with it."""
    return {os.fsencode(part) + b"/" + name: text for name, text in found.items()}


# The folders of the namespace, with the ends of their rows' names: links to shares, one to the root of another
# namespace, one to a folder of that, and one in a folder with a name beyond the basic plane of Unicode.
PARTS = {"tree": "", "inter": "-interlink", "deep": "-interlink-to-folder", "astral": "-astral"}


def printed(path):
    """Returns the answer of a program that has walked: JSON, as trees.digest without bytes."""
    return {os.fsencode(name): text for name, text in json.loads(path.read_text()).items()}


def walked(ctx, world, name, walk):
    """Makes the rows of a client."""
    for part, ending in PARTS.items():
        if not selects(ctx.patterns, f"{ctx.group.name}/{name}{ending}"):
            continue
        with ctx.check(name + ending):
            world.same(walk(part), part)


def program(ctx, world, *words, cwd=None):
    status, output = ctx.command(*words, timeout=600, env=world.environment(), cwd=cwd)
    if status:
        raise Failure(f"status {status}: {output.strip()[-250:]}")
    return output


def smbclient(ctx, world):
    """Walks by one smbclient: `recurse`, `mget`."""

    def walk(part):
        to = ctx.work / "smbclient" / part
        to.mkdir(parents=True)
        command = world.root.smbclient("recurse on", "prompt off", f'cd "{part}"', "mget *", share=ROOT_SHARE)
        program(ctx, world, *command, cwd=to)
        return below(part, trees.digest(to))

    walked(ctx, world, "smbclient", walk)


def python(ctx, world, library):
    def walk(part):
        to = ctx.work / f"{library}-{part}"
        program(ctx, world, VENV / "bin/python", HERE / "peers/dfs_walk_peer.py", library, part, to)
        return printed(to)

    walked(ctx, world, library, walk)


def smbj(ctx, world, how):
    """Walks by smbj; `anew` makes a client for each link, since one that knows the root asks for no link."""

    def walk(part):
        if not (suites.JAVA / "classes").exists():
            raise Skip("mvn or javac is missing")
        path = f"{suites.JAVA}/classes:{suites.JAVA}/jars/*"
        to = ctx.work / f"smbj-{how}-{part}"
        program(ctx, world, "java", "-Dfile.encoding=UTF-8", "-cp", path, "SmbjWalk", part, to, how)
        return printed(to)

    walked(ctx, world, f"smbj-{how}", walk)


def frevo(ctx, world):
    """Walks by Frevo's client: `ls -R`, whose answer has no checksums, `get -r` and `sync`."""
    client = os.environ["FREVO_CLIENT"]

    def listed(part):
        output = program(ctx, world, client, "ls", "-R", "--json", world.url(part))
        entries = [json.loads(line) for line in output.splitlines()]
        sizes = {os.fsencode(one["path"]): "dir" if one["type"] == "directory" else one["size"] for one in entries}
        wanted = {name: text if text == "dir" else int(text.split()[0]) for name, text in world.wanted.items()}
        inside = os.fsencode(part) + b"/"
        trees.same_digest({name: size for name, size in wanted.items() if name.startswith(inside)}, sizes)

    for part, ending in PARTS.items():
        with ctx.check("frevo-ls" + ending):
            listed(part)

    def fetched(verb):
        def walk(part):
            to = ctx.work / f"frevo-{verb[0]}-{part}"
            program(ctx, world, client, *verb, world.url(part), to)
            return below(part, trees.digest(to))

        return walk

    walked(ctx, world, "frevo-get", fetched(["get", "-r"]))
    walked(ctx, world, "frevo-sync", fetched(["sync"]))


def frevo_mount(ctx, world):
    if reason := no_fuse():
        ctx.add("frevo-mount", "skip", 0.0, reason)
        return
    with mounted(ctx, "walked", url=world.url()) as here:
        walked(ctx, world, "frevo-mount", lambda part: below(part, trees.digest(here / part)))


def cifs(ctx, world):
    """Walks by cifs.ko, which asks for the second server's address by an upcall."""

    def walk(part):
        to = ctx.work / f"cifs-{part}"
        walker = f"python3 {HERE}/peers/dfs_walk_peer.py mounted {part} {to}"
        text = f"trap 'dmesg | tail -n 12' ERR; uname -r; {walker}; grep -c ' cifs ' /proc/mounts"
        status, output = guest(ctx, "", "bash", "-ec", text, limit=900, env=world.environment())
        if status:
            raise Failure(f"status {status}: {output.strip()[-250:]}")
        return printed(to)

    walked(ctx, world, "cifs", walk)


@group("dfs/walk", seconds=300, full_only=True)
def walk(ctx):
    """1,000 links in 16 nested folders over four servers and smbd, walked by every client: the tree of the disks."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(namespace.named(ctx, {SECOND_NAME: SECOND}))
        world = World(ctx, stack)
        smbclient(ctx, world)
        python(ctx, world, "smbprotocol")
        python(ctx, world, "impacket")
        smbj(ctx, world, "once")
        smbj(ctx, world, "anew")
        frevo(ctx, world)
        frevo_mount(ctx, world)
        cifs(ctx, world)
