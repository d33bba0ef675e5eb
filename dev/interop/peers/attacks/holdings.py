"""Attacks that make the server keep resources: memory of waiting requests, descriptors, durable handles."""

import os
import struct
import time

import raw

from .link import quietly
from .scene import MIB, crowd, demand

NETWORK = "198.19.221"


def waiting_locks(scene, say):
    """Waiting LOCKs, in frames of 61 kB."""
    with scene.siege() as siege:
        owner = scene.member("198.19.222.1", user=scene.user2)
        file = owner.open("waited-for")
        owner.call(raw.LOCK, raw.lock_body(file, [(0, 100, 2 | 0x10)])).must()

        def begin(link):
            link.gain_credits(1100)
            mine = link.open("waited-for")
            for _ in range(1000):
                yield link.send(raw.LOCK, raw.lock_body(mine, [(0, 1, 2)]) + bytes(61_000))

        links, sent = crowd(scene, 12, begin, NETWORK)
        siege.judge_crowd(say, links, f"{sent} waiting LOCKs of 61 kB on {len(links)} connections")


def waiting_creates(scene, say):
    """CREATEs with 60 kB of contexts that wait for an oplock whose holder ignores the break."""
    with scene.siege() as siege:
        holder = scene.member("198.19.222.2", user=scene.user2)
        holder.open("held", oplock=9, share=7)

        def begin(link):
            link.gain_credits(1500)
            body = raw.create_body("held", disposition=5, contexts=[(b"JunkJunkJunkJunk", bytes(60_000))])
            for _ in range(1400):
                yield link.send(raw.CREATE, body)

        links, sent = crowd(scene, 12, begin, NETWORK)
        siege.judge_crowd(say, links, f"{sent} waiting CREATEs of 60 kB on {len(links)} connections")


def waiting_reads(scene, say):
    """Waiting READs of empty pipes, in frames of 61 kB."""
    with scene.siege() as siege:

        def begin(link):
            link.connect_tree("IPC$").must()
            link.gain_credits(1100)
            pipe = link.open("srvsvc", access=0x12019F)
            for _ in range(1000):
                yield link.send(raw.READ, raw.read_body(pipe, 0, 4096) + bytes(61_000))

        links, sent = crowd(scene, 12, begin, NETWORK)
        siege.judge_crowd(say, links, f"{sent} waiting READs of 61 kB on {len(links)} connections")


def replies_untaken(scene, say):
    """Replies of 1 MiB that the client does not read, on 40 connections."""
    with scene.siege() as siege:
        path = scene.directory / "share" / "large"
        path.write_bytes(bytes(8 << 20))
        os.chmod(path, 0o666)

        def begin(link):
            link.gain_credits(600)
            file = link.open("large")
            for _ in range(14):
                yield link.send(raw.READ, raw.read_body(file, 0, 1 << 20), charge=16)

        links, sent = crowd(scene, 40, begin, NETWORK)
        siege.judge_crowd(say, links, f"{sent} replies of 1 MiB asked for on {len(links)} connections")


def frames_begun(scene, say):
    """Frames of 8 MiB without their last byte, on 60 connections."""
    with scene.siege() as siege:

        def begin(link):
            link.gain_credits(200)
            file = link.open("begun")
            body = raw.write_body(file, 0, bytes((8 << 20) - 4096))
            message = link.sign(link.header(raw.WRITE, 128, 0, link.next_id, link.tree_id, link.session_id) + body)
            yield link.socket.sendall(struct.pack(">I", len(message)) + message[:-1])

        links, _ = crowd(scene, 60, begin, NETWORK, timeout=5)
        siege.judge_crowd(say, links, f"{len(links)} frames of 8 MiB begun")


def listings(scene, say):
    """Unfinished enumerations, each with its buffer, on 4 connections."""
    path = scene.folder("listed")
    for number in range(300):
        os.mknod(path / f"{number:03}", 0o100666)
    with scene.siege() as siege:

        def begin(link):
            link.gain_credits(200)
            for _ in range(1000):
                folder = link.open_directory("listed")
                yield link.call(raw.QUERY_DIRECTORY, raw.directory_body(folder, 12, length=400)).must()

        links, begun = crowd(scene, 4, begin, NETWORK)
        siege.judge_crowd(say, links, f"{begun} listings begun, {scene.descriptors()} descriptors")


def pipes(scene, say):
    """Pipes with unfinished requests and unread answers."""
    bind = bytes.fromhex(
        "05000b03100000004800000001000000b810b8100000000001000000000001004b324fc8"
        "7016d30112785a47bf6ee188030000000" + "4"
        "5d888aeb1cc9119fe808002b104860" + "02000000"
    )
    with scene.siege() as siege:

        def begin(link):
            link.connect_tree("IPC$").must()
            for _ in range(60):
                pipe = link.open("srvsvc", access=0x12019F)
                link.call(raw.WRITE, raw.write_body(pipe, 0, bind))
                link.call(raw.READ, raw.read_body(pipe, 0, 4096))
                # Send only the first fragment of each RPC call. The last fragment never comes.
                stub = bytes(4200)
                part = struct.pack("<BBBBIHHIIHH", 5, 0, 0, 1, 16, 24 + len(stub), 0, 2, 60_000, 0, 15) + stub
                for number in range(14):
                    piece = part if number == 0 else part[:3] + b"\0" + part[4:]
                    quietly(link.call, raw.WRITE, raw.write_body(pipe, 0, piece))
                yield pipe

        links, held = crowd(scene, 30, begin, NETWORK)
        siege.judge_crowd(say, links, f"{held} pipes with unfinished requests on {len(links)} connections")


DURABLE = b"DH2Q"


def durable_body(name, timeout_ms=300_000):
    data = struct.pack("<IIQ", timeout_ms, 0, 0) + os.urandom(16)
    return raw.create_body(name, oplock=9, disposition=3, contexts=[(DURABLE, data)])


def durable_junk(scene, say):
    """Many abandoned durable opens leave descriptors and memory for others."""
    with scene.siege() as siege:
        left = 0
        for round_ in range(5):
            link = quietly(scene.member, f"198.19.223.{round_ + 1}", timeout=20)
            if not link:
                break
            for number in range(1000):
                answer = quietly(link.call, raw.CREATE, durable_body(f"junk-{round_}-{number}"))
                if not answer or answer.status:
                    break
                left += 1
            link.close()
        time.sleep(1)
        say(f"{left} durable opens left behind, {scene.descriptors()} descriptors")
        siege.newcomers_served(say)
        siege.others_wait(say, most=0.5)


def tokens(scene, say):
    """Offload tokens keep closed files open: those descriptors are limited, too."""
    with scene.siege() as siege:
        before, made, links = scene.descriptors(), 0, []
        for number in range(36):
            link = quietly(scene.member, f"198.19.224.{number + 1}", timeout=20)
            if not link:
                break
            links.append(link)
            files = [quietly(link.open, f"token-{number}-{at}") for at in range(64)]
            for file in filter(None, files):
                quietly(link.call, raw.WRITE, raw.write_body(file, 0, bytes(4096)))
            time.sleep(0.03)
            for file in filter(None, files):
                answer = quietly(
                    link.call,
                    raw.IOCTL,
                    raw.ioctl_body(file, 0x94264, struct.pack("<IIIIQQ", 32, 0, 300_000, 0, 0, 4096), most=1024),
                )
                made += bool(answer and answer.status == 0)
                quietly(link.shut, file)
        held = scene.descriptors() - before
        say(f"{made} tokens on {len(links)} connections, {held} descriptors held though all files are closed")
        siege.newcomers_served(say)
        siege.others_wait(say, most=0.5)
        for link in links:
            link.close()


def persistent_growth(scene, say):
    """Persistent handles opened and closed many times: the state store stays small."""
    store = scene.directory / "state" / "persistent-opens"
    with scene.siege() as siege:
        link = scene.member("198.19.225.1", share="continuous", timeout=30)
        before, opened = store.stat().st_size if store.exists() else 0, 0
        name = "n" * 200
        for number in range(3000):
            data = struct.pack("<IIQ", 0, 2, 0) + os.urandom(16)
            answer = link.call(
                raw.CREATE, raw.create_body(f"{name}{number % 50}", oplock=9, contexts=[(DURABLE, data)])
            )
            if answer.status:
                break
            opened += 1
            link.shut(answer.body[64:80])
        grown = (store.stat().st_size if store.exists() else 0) - before
        say(f"{opened} persistent opens, the store grew by {grown // 1024} KiB")
        siege.others_wait(say, most=0.5)
        demand(grown <= 16 * MIB, f"the state store grew by {grown // MIB} MiB")


MEMORY = [
    ("30-waiting-locks", waiting_locks),
    ("31-waiting-creates", waiting_creates),
    ("32-waiting-reads", waiting_reads),
    ("33-replies-untaken", replies_untaken),
    ("34-frames-begun", frames_begun),
    ("35-listings", listings),
    ("36-pipes", pipes),
    ("37-persistent-growth", persistent_growth),
]
DESCRIPTORS = [("38-tokens", tokens), ("39-durable-junk", durable_junk)]
