"""Attacks by an ordinary account on the service of others."""

import os
import shutil
import socket
import struct
import time

import raw

from . import ntlm
from .link import Link, quietly
from .scene import MIB, Slowest, crowd, demand, percentile

FILE, SECURITY = 1, 3

# The server's limit `SESSIONS_PER_USER`, and the status of a session beyond it.
SESSIONS_PER_USER = 4096
REQUEST_NOT_ACCEPTED = 0xC00000D0


def notify_memory(scene, say):
    """2: CHANGE_NOTIFY requests of 8 MiB keep no frames while they wait."""
    with scene.siege() as siege:
        link = scene.member("198.19.230.1", timeout=5)
        link.gain_credits(400)
        folder = link.open_directory()
        body = raw.notify_body(folder, length=4096) + bytes((8 << 20) - 200)
        sent = 0
        for _ in range(70):
            if quietly(link.send, raw.CHANGE_NOTIFY, body) is None:
                break
            sent += 1
        time.sleep(2)
        say(f"{sent} requests of 8 MiB sent")
        siege.newcomers_served(say)
        siege.others_wait(say, most=0.5)
        siege.memory_stays(say)
        link.close()
        siege.memory_returns(say)


def notify_crowd(scene, say):
    """2: a thousand waiting requests of 61 kB each on several connections."""
    with scene.siege() as siege:

        def begin(link):
            link.gain_credits(1100)
            body = raw.notify_body(link.open_directory()) + bytes(61_000)
            for _ in range(1000):
                yield link.send(raw.CHANGE_NOTIFY, body)

        links, sent = crowd(scene, 12, begin, "198.19.229", timeout=5)
        siege.judge_crowd(say, links, f"{sent} requests of 61 kB on {len(links)} connections")


def ea_list(scene, say):
    """3: a list of 690,312 extended attributes holds no core."""
    with scene.siege() as siege:
        link = scene.member("198.19.231.1", timeout=60)
        link.gain_credits(400)
        file = link.open("eas", access=0x1F01FF)
        # The server compares each new name with the existing ones, so many names cost much time.
        some = b"".join(struct.pack("<IBBH", 16, 0, 5, 1) + b"e%04d\0" % n + b"v" + b"\0" for n in range(900))
        link.call(raw.SET_INFO, raw.set_body(file, FILE, 15, some[:-16] + bytes(4) + some[-12:]))
        entry = struct.pack("<IBBH", 12, 0, 2, 0) + b"ab\0" + b"\0"
        data = (entry * 690_312)[:-12] + b"\0\0\0\0" + entry[4:]
        began = time.monotonic()
        answer = quietly(link.call, raw.SET_INFO, raw.set_body(file, FILE, 15, data), charge=128)
        say(f"answered {f'{answer.status:#x}' if answer else 'by a disconnect'} after {time.monotonic() - began:.2f} s")
        siege.others_wait(say)
        # Different new names that together exceed the limit of 64 KiB for a file's attributes.
        link = scene.member("198.19.231.2", timeout=30)
        link.gain_credits(400)
        file = link.open("eas2", access=0x1F01FF)
        data = b"".join(struct.pack("<IBBH", 24, 0, 8, 4) + b"%08d\0" % n + b"wert" + bytes(3) for n in range(200_000))
        began = time.monotonic()
        answer = quietly(
            link.call, raw.SET_INFO, raw.set_body(file, FILE, 15, data[:-24] + bytes(4) + data[-20:]), charge=128
        )
        say(
            f"200,000 names: {f'{answer.status:#x}' if answer else 'a disconnect'}"
            f" after {time.monotonic() - began:.2f} s"
        )
        siege.others_wait(say)
        siege.newcomers_served(say)


def watches(scene, say):
    """4: 3,000 watches of one folder cost little memory and do not slow down changes in it."""
    scene.folder("watched")
    with scene.siege() as siege:

        def begin(link):
            quietly(link.gain_credits, 1100)
            for _ in range(1000):
                yield link.send(raw.CHANGE_NOTIFY, raw.notify_body(link.open_directory("watched")))

        links, made = crowd(scene, 3, begin, "198.19.232", timeout=20)
        # Another account changes the folder. Its changes must not become slow because of the
        # watches.
        writer, slowest, times = scene.member("198.19.233.1", user=scene.user2, timeout=30), Slowest(), []
        for number in range(400):
            began = time.monotonic()
            with slowest:
                file = writer.open("watched\\" + f"{number:04}" + "n" * 120, options=0x1000, access=0x12019F | 0x10000)
                writer.shut(file).must()
            times.append(time.monotonic() - began)
        # A busy machine causes some longer delays. They are rare, so the 99th percentile leaves
        # them out.
        most = percentile(times, 0.99)
        say(f"{made} watches; 99 of 100 creates and deletes there at most {most * 1e3:.0f} ms, all {slowest}")
        siege.others_wait(say)
        siege.memory_stays(say, growth=64 * MIB)
        for link in links:
            link.close()
        siege.memory_returns(say)
        demand(most <= 0.05, f"creates and deletes below {made} watches took {most * 1e3:.0f} ms")


def sessions(scene, say):
    """5: an account has as many sessions as its cap says, they cost little, and memory comes back."""
    links, granted, refused = [], 0, None
    hashed = ntlm.nt_hash(scene.password)
    with scene.siege() as siege:
        while refused is None and granted <= SESSIONS_PER_USER:
            try:
                link = scene.link(f"198.19.234.{len(links) % 8 + 1}", timeout=10)
                links.append(link)
                for _ in range(60):
                    refused = link.guess(scene.user, hashed) or None
                    if refused is not None:
                        break
                    granted += 1
                    link.key = None
            except raw.Refused as answer:
                # A logon counts from its first request on.
                refused = answer.status
            except OSError:
                break
        say(f"{granted} sessions granted, then {f'{refused:#x}' if refused else 'nothing'}")
        siege.newcomers_served(say)
        siege.others_wait(say)
        siege.memory_stays(say, growth=64 * MIB)
        for link in links:
            link.close()
        siege.memory_returns(say)
    demand(
        granted <= SESSIONS_PER_USER and refused == REQUEST_NOT_ACCEPTED,
        f"one account had {granted} sessions, of {SESSIONS_PER_USER} that it may have",
    )


def opens(scene, say):
    """5: the opens of one account leave descriptors for newcomers."""
    with scene.siege() as siege:

        def begin(link):
            for at in range(1000):
                yield link.open(f"open-{link.guid.hex()}-{at}")

        links, opened = crowd(scene, 3, begin, "198.19.235", timeout=20)
        time.sleep(1)
        say(f"{opened} opens, {scene.descriptors()} descriptors")
        siege.newcomers_served(say)
        siege.others_wait(say, most=0.5)
        for link in links:
            link.close()


def slow_reader(scene, seconds=85):
    """6: a client that reads no replies is disconnected, though it sends an ECHO every five seconds."""
    link = scene.member("198.19.236.1", timeout=5)
    link.gain_credits(600)
    file = link.open("slow", access=0x12019F)
    link.call(raw.WRITE, raw.write_body(file, 0, bytes(1 << 20)), charge=16).must()
    link.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for _ in range(10):
        link.send(raw.READ, raw.read_body(file, 0, 1 << 20), charge=16)
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        time.sleep(5)
        try:
            link.send(raw.ECHO, b"\4\0\0\0")
        except OSError:
            return time.monotonic() - began
    return None


def big_folder(scene, say, count=530_000):
    """7: a folder of more than 524,288 names holds no core for a name that is absent."""
    folder = scene.directory / "share" / "big"
    os.makedirs(folder, exist_ok=True)
    fd = os.open(folder, os.O_RDONLY)
    for number in range(count):
        os.mknod(f"n{number:07}", 0o100666, dir_fd=fd)
    os.close(fd)
    os.chmod(folder, 0o777)
    with scene.siege() as siege:
        link, slowest = scene.member("198.19.237.1", timeout=60), Slowest()
        for number in range(6):
            with slowest:
                answer = link.call(raw.CREATE, raw.create_body(f"big\\absent-{number}", disposition=1))
            demand(answer.status == 0xC0000034, f"an absent name was answered {answer.status:#x}")
        say(f"{count} names, an absent one is reported after at most {slowest}")
        siege.others_wait(say)


def owner(scene, say):
    """11: setting the owner S-1-22-1-N does not chown to that user, and does not restore set-user-ID."""
    link = scene.member("198.19.238.1")
    path, gained = scene.directory / "share" / "owned", []
    for uid in (0, 4711):
        path.write_bytes(b"#!/bin/sh\n")
        os.chown(path, 50001, 50001)
        os.chmod(path, 0o6777)
        file = link.open("owned", access=0x1F01FF)
        sid = struct.pack("<BB", 1, 2) + (22).to_bytes(6, "big") + struct.pack("<II", 1, uid)
        descriptor = struct.pack("<BBHIIII", 1, 0, 0x8000, 20, 0, 0, 0) + sid
        answer = link.call(raw.SET_INFO, raw.set_body(file, SECURITY, 0, descriptor, 1))
        link.shut(file)
        found = path.stat()
        say(f"owner S-1-22-1-{uid}: {answer.status:#x}, uid {found.st_uid}, mode {found.st_mode & 0o7777:o}")
        if found.st_uid == uid:
            gained.append(f"the file belongs to uid {uid} now, mode {found.st_mode & 0o7777:o}")
    path.unlink()
    demand(not gained, "; ".join(gained))


def forbidden_share(scene, say):
    """12: a forbidden share and an absent one get equal answers in equal time."""
    link, found = scene.member("198.19.238.2"), {}
    for name in ("forbidden", "absent"):
        times = []
        for _ in range(200):
            began = time.monotonic()
            status = link.connect_tree(name).status
            times.append(time.monotonic() - began)
        found[name] = status, sorted(times)[len(times) // 2]
        say(f"{name}: {status:#x}, median {found[name][1] * 1e6:.0f} us")
    demand(
        found["forbidden"][0] == found["absent"][0],
        f"forbidden is answered {found['forbidden'][0]:#x}, absent {found['absent'][0]:#x}",
    )


def symlink_moved(scene, say):
    """13: a symbolic link that stays in the share does not lead out of it after a rename, for programs of the host."""
    link, root = scene.member("198.19.238.3"), scene.directory / "share"
    for name in ("deep", "deep\\er", "up"):
        link.shut(link.open(name, options=1, access=0x1F01FF))
    target = "..\\..\\inside".encode("utf-16-le")
    body = struct.pack("<HHHHI", 0, len(target), len(target), len(target), 1) + target * 2
    data = struct.pack("<IHH", 0xA000000C, len(body), 0) + body
    file = link.open("deep\\er\\link", access=0x1F01FF, options=0x200000)
    made = link.call(raw.IOCTL, raw.ioctl_body(file, 0x900A4, data))
    link.shut(file)
    out = []
    for what, into in (("deep\\er\\link", "link"), ("deep\\er", "er")):
        if what == "deep\\er":
            quietly(link.shut, b"\0" * 16)
            file = quietly(link.open, "link", access=0x1F01FF, options=0x200000, disposition=1)
            if file:
                link.rename(file, "deep\\er\\link")
        file = quietly(link.open, what, access=0x1F01FF, options=0x200000, disposition=1)
        if not file:
            continue
        status = link.rename(file, into)
        place = root / ("link" if into == "link" else "er/link")
        leads = os.path.realpath(place) if place.is_symlink() else ""
        say(f"made {made.status:#x}, {what} renamed {status:#x}")
        if leads and not leads.startswith(str(root) + "/"):
            out.append(f"{into} leads to {leads}")
    demand(not out, "; ".join(out))


def log_forging(scene, say):
    """14: names cannot forge fields or lines of the log, and refusals do not fill it."""
    before, began = len(scene.log()), time.monotonic()
    eve = "eve\nINFO frevo::session: logged on user=smbuser\tpeer=\u202e\x1b[2J"
    quietly(lambda: scene.link("198.19.238.4", timeout=5).guess(eve, ntlm.nt_hash("x"), session_key=b"12345"))
    quietly(
        lambda: scene.link("198.19.239.4", timeout=5).guess(
            'eve" user=smbuser sealed=true peer=1.2.3.4 x="', ntlm.nt_hash("x"), session_key=b"12345"
        )
    )
    link = scene.member("198.19.238.5")
    for name in ("absent\nERROR all is lost", "forbidden reason=none user=root", "forbidden"):
        link.connect_tree(name)
    for _ in range(3000):
        link.connect_tree("forbidden")
    time.sleep(0.3)
    text, seconds = scene.log()[before:], time.monotonic() - began
    lines = text.splitlines()
    forged = [
        line
        for line in lines
        if line.startswith(("INFO", "ERROR all"))
        or "\x1b" in line
        or "\u202e" in line
        or " user=smbuser sealed=true peer=1.2.3.4" in line.replace('\\"', "")
        and 'user="eve\\"' not in line
        or " reason=none user=root" in line
        and '"forbidden reason=none' not in line
    ]
    say(f"{len(lines)} lines, {len(text) // 1024} KiB in {seconds:.1f} s")
    demand(not forged, f"a name forged {forged[:1]}")
    demand(len(lines) < 500, f"3,000 refusals made {len(lines)} lines")


def plain_again(scene, say):
    """15: a sealed session cannot be reauthenticated unsealed."""
    link = scene.member("198.19.238.6", seal=True)
    sealing, link.sealing = link.sealing, None
    try:
        answer, _ = link.setup(ntlm.negotiate())
        status = answer.status
    except OSError:
        status = "a disconnect"
    say(f"plain SESSION_SETUP on it: {status if isinstance(status, str) else hex(status)}")
    demand(status != raw.MORE_PROCESSING, "a plain SESSION_SETUP began to reauthenticate a sealed session")
    if not isinstance(status, str):
        link.sealing = sealing
        link.call(raw.ECHO, b"\4\0\0\0").must()


def client_guid(scene, say):
    """16: another account's use of a ClientGuid does not block the client that owns it."""
    guid = os.urandom(16)
    thief = Old(scene.target, "198.19.238.7", guid=guid)
    demand(thief.guess(scene.user2, ntlm.nt_hash(scene.password)) == 0, "the other account cannot log on with 3.0")
    status = scene.link("198.19.238.8", guid=guid).guess(scene.user, ntlm.nt_hash(scene.password))
    say(f"the owner's logon: {status:#x}")
    demand(status == 0, f"while another account has the ClientGuid, its owner's logon is answered {status:#x}")


class Old(Link):
    """A link of dialect 3.0."""

    def negotiate(self):
        body = struct.pack("<HHHHI16sQH", 36, 1, 1, 0, 0x46, self.guid, 0, 0x0300)
        self.preauthenticated(raw.NEGOTIATE, body)
        self.base = self.hash

    def keys(self, exported):
        self.key = None


PRIVATE = [
    ".frevo-streams",
    ".FREVO-STREAMS",
    ".frevo-streams\\secret",
    ".frevo-streams::$INDEX_ALLOCATION",
    ".frevo-streams:$I30:$INDEX_ALLOCATION",
    ".frevo-streams.",
    ".frevo-streams ",
    ".frevo-streams:x",
    "FREVO-~1",
    "x\\..\\.frevo-streams",
    ".\\.frevo-streams",
    "\\.frevo-streams",
    "..",
    "..\\..\\etc\\passwd",
    "x/../../etc/passwd",
    "/etc/passwd",
    "\\\\.\\c:\\x",
    "a\0b",
    "\ud800",
    ".frevo-streams\0",
    "@GMT-2026.01.01-00.00.00\\..\\..\\etc",
]


def tidy(scene):
    """Removes new entries from the shares' roots; returns True if there were any."""
    made = False
    for share in ("share", "share2"):
        for entry in os.scandir(scene.directory / share):
            if entry.name not in (".frevo-streams", "x"):
                made = True
                os.rmdir(entry.path) if entry.is_dir() else os.unlink(entry.path)
    return made


def private_names(scene, say):
    """F4, F5: no spelling reaches the folder of streams, a path above the share, or an invalid name."""
    for share in ("share", "share2"):
        for entry in os.scandir(scene.directory / share):
            shutil.rmtree(entry.path) if entry.is_dir() else os.unlink(entry.path)
        folder = scene.directory / share / ".frevo-streams"
        os.makedirs(folder, exist_ok=True)
        (folder / "secret").write_text("secret")
        os.makedirs(scene.directory / share / "x", exist_ok=True)
    reached, tried = [], 0
    for share in ("share", "torture", "fruit", "noncanonical"):
        link = scene.member("198.19.238.9", share=share)
        for name in PRIVATE:
            for options, disposition in ((0, 1), (1, 1), (0x200000, 1), (1, 2), (0, 3)):
                tried += 1
                body = raw.create_body(
                    name.encode("utf-16-le", "surrogatepass"), access=0x120089, disposition=disposition, options=options
                )
                answer = quietly(link.call, raw.CREATE, body)
                if answer is None:
                    link = scene.member("198.19.238.9", share=share)
                elif answer.status == 0:
                    # tidy() removes a new object. An open that succeeded on an old object reached a
                    # private entry, which is a failure.
                    link.shut(answer.body[64:80])
                    made = tidy(scene)
                    if disposition == 1 or not made:
                        reached.append(f"{share}\\{name!r} (options {options:#x}, disposition {disposition})")
        root = link.open_directory()
        for pattern in ("*", ".frevo*", ".frevo-streams", "FREVO*", "<.*"):
            answer = link.call(raw.QUERY_DIRECTORY, raw.directory_body(root, 12, pattern, flags=0x10))
            shown = (
                [
                    entry[12:].decode("utf-16-le", "replace").strip("\0").lower()
                    for entry in raw.chained(answer.buffer())
                ]
                if answer.status == 0
                else []
            )
            if ".frevo-streams" in shown:
                reached.append(f"{share}: listed by {pattern}")
        folder = link.open("mine", access=0x1F01FF, options=1)
        status = link.rename(folder, ".frevo-streams\\in")
        tidy(scene)
        if status == 0:
            reached.append(f"{share}: renamed into it")
    say(f"{tried} names tried")
    demand(not reached, "; ".join(reached))


ATTACKS = [
    ("02-notify-memory", notify_memory),
    ("02-notify-crowd", notify_crowd),
    ("03-ea-list", ea_list),
    ("04-watches", watches),
    ("05-sessions", sessions),
    ("07-big-folder", big_folder),
    ("11-owner", owner),
    ("12-forbidden-share", forbidden_share),
    ("13-symlink-moved", symlink_moved),
    ("14-log-forging", log_forging),
    ("16-client-guid", client_guid),
    ("f4-private-names", private_names),
]
DESCRIPTORS = [("05-opens", opens)]
SEALED = [("15-plain-again", plain_again)]
