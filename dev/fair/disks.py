"""Folders on other file systems, and attacks there. Where a file system is not to be had, its rows are left out."""

import contextlib
import itertools
import pathlib
import shutil
import subprocess

from client import CLOSE, CREATE, QUERY_DIRECTORY, SET_INFO, close, create, query_directory, rename

from attacks import DIRECTORY, LIST, Attack, keep_busy

ALL, MAKE = 0x1F01FF, 2
DELETE_ON_CLOSE, RESTART = 0x1000, 1
#: The commands that make the file systems.
MAKERS = {"xfs": ["mkfs.xfs", "-q", "-f"], "btrfs": ["mkfs.btrfs", "-q", "-f"]}
IMAGE_BYTES = 4 << 30


class Absent(Exception):
    """The machine has no such file system."""


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def folder(directory, attack):
    """Gives the folder of an attack, on the file system that it needs."""
    plain = directory / ("files" if attack.files else attack.name)
    plain.mkdir(parents=True, exist_ok=True)
    if not attack.file_system:
        yield plain
        return
    place = directory / "mounted"
    place.mkdir(exist_ok=True)
    mount = through_fuse if attack.file_system == "fuse" else on_image
    with mount(attack.file_system, plain, place):
        try:
            yield place
        finally:
            # A server that has ended may have files open for a moment.
            run("umount", "--lazy", place)


@contextlib.contextmanager
def on_image(kind, plain, place):
    """Mounts a new file system of a kind, on an image in `plain`."""
    kinds = pathlib.Path("/proc/filesystems").read_text().split()
    if kind not in kinds or not shutil.which(MAKERS[kind][0]) or not pathlib.Path("/dev/loop-control").exists():
        raise Absent(f"this machine has no {kind}, {MAKERS[kind][0]} or loop device")
    image = plain / "image"
    image.unlink(missing_ok=True)
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    try:
        run(*MAKERS[kind], image)
        run("mount", "-o", "loop", image, place)
    except subprocess.CalledProcessError as fault:
        raise Absent(str(fault)) from fault
    yield
    image.unlink()


@contextlib.contextmanager
def through_fuse(_, plain, place):
    """Mounts a folder through a process, which delays each read."""
    if not shutil.which("bindfs") or not pathlib.Path("/dev/fuse").exists():
        raise Absent("this machine has no bindfs or FUSE")
    run("bindfs", "--read-rate=64k", plain, place)
    yield


class Elsewhere(Attack):
    """Names made, renamed, listed and deleted, on another file system."""

    connections, count = (128,), 20_000

    def prepare(self, data):
        folder = data / "many"
        folder.mkdir(exist_ok=True)
        for number in range(self.count):
            (folder / f"file-{number:05}").touch()

    def run(self, clients, end):
        names, opened, own = itertools.count(), {}, {}
        folders = {
            client: client.open("many", access=LIST, options=DIRECTORY) for client in clients[: len(clients) // 2]
        }

        def again(client, number):
            if client in folders:
                return QUERY_DIRECTORY, query_directory(folders[client], flags=RESTART), 1
            if client not in opened:
                own[client] = f"many\\made-{next(names)}"
                return CREATE, create(own[client], access=ALL, disposition=MAKE, options=DELETE_ON_CLOSE), 1
            if not own[client].endswith("-moved"):
                own[client] += "-moved"
                return SET_INFO, rename(opened[client], own[client]), 1
            return CLOSE, close(opened.pop(client)), 1

        def note(client, status):
            if status == 0 and int.from_bytes(client.last[12:14], "little") == CREATE:
                opened[client] = client.last[128:144]

        return f"{keep_busy(clients, end, again, note)} answers"


def on(kind, text):
    """Returns these attacks on one file system."""
    attributes = {
        "name": f"names-{kind}",
        "file_system": kind,
        "text": f"files made, renamed and deleted in a folder of 20,000, and its listings, on {text}",
    }
    return type(f"On{kind.title()}", (Elsewhere,), attributes)()


ATTACKS = [on("xfs", "XFS"), on("btrfs", "Btrfs"), on("fuse", "a disk behind FUSE, whose process is slow")]
