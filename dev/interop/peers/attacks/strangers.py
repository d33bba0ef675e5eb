"""Attacks without a password."""

import os
import random
import resource
import socket
import struct
import threading
import time

import raw

from . import ntlm
from .link import LOGON_FAILURE, Link, connect
from .scene import MIB, Unfit, demand, percentile

# Takes the place of a status when no answer came.
NO_ANSWER = -1
WRONG = ntlm.nt_hash("not the password")


def at_once(works):
    """Runs all functions at the same time; returns each result or exception."""
    results = [None] * len(works)

    def run(at):
        try:
            results[at] = works[at]()
        except Exception as e:  # the caller judges the failure
            results[at] = e

    threads = [threading.Thread(target=run, args=(at,), daemon=True) for at in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def without_room_for_the_mic(message):
    """Places the payload where the MIC belongs, though MsvAvFlags announces a MIC."""
    message = message[:72] + message[88:]
    for at in range(12, 60, 8):
        offset = struct.unpack_from("<I", message, at + 4)[0]
        message = message[: at + 4] + struct.pack("<I", offset - 16) + message[at + 8 :]
    return message


# False fields of AUTHENTICATE. Each is sent with the right password and with a wrong password.
LIES = {
    "a key of 5 bytes": {"session_key": bytes(5)},
    "a key of 15 bytes": {"session_key": bytes(15)},
    "a key of 17 bytes": {"session_key": bytes(17)},
    "a key of 64 KiB": {"session_key": bytes(60_000)},
    "no key": {"session_key": b""},
    "a workstation of 3 bytes": {"workstation": b"abc"},
    "a workstation of lone surrogates": {"workstation": b"\0\xd8" * 3},
    "an LM response of 1 byte": {"lm": b"\1"},
    "an LM response of 20,000 bytes": {"lm": bytes(20_000)},
    "a MIC that is announced and zero": {"av": struct.pack("<HHI", 6, 4, 2) + bytes(4)},
    "a MIC without room": {"av": struct.pack("<HHI", 6, 4, 2) + bytes(4), "message": without_room_for_the_mic},
    "AvFlags of 2 bytes": {"av": struct.pack("<HHH", 6, 2, 2) + bytes(4)},
    "AvPairs that lie": {"av": struct.pack("<HH", 9, 900) + bytes(8)},
    "a channel binding of 3 bytes": {"av": struct.pack("<HH", 10, 3) + bytes(3) + bytes(4)},
    "a target name of 3 bytes": {"av": struct.pack("<HH", 9, 3) + bytes(3) + bytes(4)},
    "all flags": {"flags": 0xFFFFFFFF},
    "no flags": {"flags": 0},
    "an offset past the end": {"message": lambda m: m[:56] + struct.pack("<I", 1 << 20) + m[60:]},
    "a message that is cut short": {"message": lambda m: m[:-9]},
}


def password_oracle(scene, say):
    """1: a token with false fields must not reveal whether the password is right."""
    right = ntlm.nt_hash(scene.password)

    def judged(hashed, lie):
        network, began = scene.network(), time.monotonic()
        link = scene.link(network + ".2", timeout=30)
        # Try twice: the second answer shows how the first attempt changed the limit of attempts.
        answers = []
        for _ in range(2):
            began = time.monotonic()
            try:
                answers.append((link.guess(scene.user, hashed, **lie), time.monotonic() - began))
            except OSError:
                answers.append(("cut", time.monotonic() - began))
                break
        return answers

    names = list(LIES)
    works = [lambda lie=LIES[n], h=h: judged(h, dict(lie)) for n in names for h in (right, WRONG)]
    results, told, accepted = at_once(works), [], 0
    for at, name in enumerate(names):
        good, bad = results[2 * at], results[2 * at + 1]
        if isinstance(good, Exception) or isinstance(bad, Exception):
            told.append(f"{name}: {good!r} {bad!r}")
            continue
        if good[0][0] == 0:
            accepted += 1
            continue
        statuses = [g[0] == b[0] for g, b in zip(good, bad, strict=False)]
        times = [abs(g[1] - b[1]) < 0.7 for g, b in zip(good, bad, strict=False)]
        if not all(statuses) or not all(times) or len(good) != len(bad):
            shown = [[f"{s if s == 'cut' else hex(s)} {t:.2f} s" for s, t in a] for a in (good, bad)]
            told.append(f"{name}: right {shown[0]}, wrong {shown[1]}")
    say(f"{len(names)} fields that lie, {accepted} of them taken with the right password")
    demand(not told, f"{len(told)} reveal the right password: " + "; ".join(told))


def pour(scene, source, user, hashed, until, results, pace=0.0, timeout=90):
    """Guesses on new sockets until `until`; appends (began, seconds, status) of each guess to `results`."""
    while time.monotonic() < until:
        try:
            link = scene.link(source, timeout=timeout)
            while time.monotonic() < until:
                began = time.monotonic()
                status = link.guess(user, hashed() if callable(hashed) else hashed)
                results.append((began, time.monotonic() - began, status))
                if pace:
                    time.sleep(pace)
        except (OSError, raw.Refused):
            time.sleep(0.05)


def logon_time(scene, source, user=None):
    """Returns the seconds and the status of one honest logon."""
    began = time.monotonic()
    try:
        link = scene.link(source, timeout=10)
        status = link.guess(user or scene.user, ntlm.nt_hash(scene.password))
        link.close()
    except OSError:
        status = NO_ANSWER
    return time.monotonic() - began, status


def neighbour(scene, say):
    """8: wrong guesses from one address block no other address, not even neighbours."""
    for name, attacker, near, known, far in (
        ("a network", "198.19.240.2", "198.19.240.3", "198.19.240.4", "198.19.241.3"),
        ("the local machine", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.9.9.3"),
    ):
        target = scene.target
        if attacker.startswith("127."):
            scene.target = ("127.0.0.1", target[1])
        try:
            calm = min(logon_time(scene, known)[0] for _ in range(3))
            until, results = time.monotonic() + 6, []
            crowd = [
                threading.Thread(target=pour, args=(scene, attacker, scene.user, WRONG, until, results), daemon=True)
                for _ in range(40)
            ]
            for thread in crowd:
                thread.start()
            time.sleep(2.5)
            there, near_one, known_one = at_once([lambda s=s: logon_time(scene, s) for s in (far, near, known)])
            for who, found, most in (
                ("elsewhere", there, calm + 1.0),
                ("a neighbour", near_one, 2.5),
                ("one who had logged on before", known_one, 2.5),
            ):
                if isinstance(found, Exception):
                    raise found
                seconds, status = found
                say(f"{name}, {who}: {seconds * 1e3:.0f} ms")
                outcome = "not answered" if status == NO_ANSWER else f"refused with {status:#x}"
                demand(status == 0, f"{name}, {who}: the right password was {outcome} after {seconds:.1f} s")
                demand(seconds <= most, f"{name}, {who}: the right password waited {seconds:.1f} s")
        finally:
            scene.target = target


def guessing(scene, say, seconds=12, networks=10, sockets=24, rate=300):
    """A4: of a flood of guesses at most one in two seconds counts, for an account and a network.

    One guess of each network's flood is the right password. If `submitted` guesses went out in `seconds`, it counts
    with a chance of at most 0.5 * seconds / submitted; more hits than that makes likely fail.
    """
    until, pools, pause = time.monotonic() + seconds, [], networks * sockets / rate
    right = ntlm.nt_hash(scene.password)
    for number in range(networks):
        pool = Pool(scene, scene.network(), random.Random(number).uniform(0.4, 0.8) * seconds, right)
        pools.append(pool)
        for at in range(sockets):
            source = f"{pool.network}.{2 + at // 48}"
            threading.Thread(
                target=pour, args=(scene, source, scene.user, pool.next, until, pool.answers, pause, 20), daemon=True
            ).start()
    calm = min(logon_time(scene, "198.19.248.6", scene.user2)[0] for _ in range(3))
    elsewhere = []
    while time.monotonic() < until:
        elsewhere.append(logon_time(scene, "198.19.248.7"))
        time.sleep(0.3)
    time.sleep(3)
    submitted = [pool.submitted for pool in pools]
    likely = sum(min(1, (0.5 * seconds + 1) / max(1, count)) for count in submitted)
    hits = sum(any(status == 0 for _, _, status in pool.answers) for pool in pools)
    late = sorted(s for s, _ in elsewhere)
    say(
        f"{sum(submitted)} guesses in {seconds} s over {networks * sockets} sockets of {networks} networks, {hits} of"
        f" {networks} right ones counted where {likely:.1f} may; a logon from elsewhere"
        f" {percentile(late, 0.5) * 1e3:.0f} ms, at most {late[-1] * 1e3:.0f} ms, {calm * 1e3:.0f} ms without the flood"
    )
    demand(
        hits <= likely + 2 * likely**0.5 + 1,
        f"{hits} of {networks} right guesses were checked, {likely:.1f} are allowed",
    )
    demand(all(status == 0 for _, status in elsewhere), "a logon from elsewhere was refused")
    demand(percentile(late, 0.5) <= calm + 0.05, f"logons from elsewhere take {percentile(late, 0.5) * 1e3:.0f} ms")


class Pool:
    """The guesses from one network; one of them is right."""

    def __init__(self, scene, network, after, right):
        self.network, self.right_at, self.right = network, time.monotonic() + after, right
        self.submitted, self.answers = 0, []

    def next(self):
        self.submitted += 1
        if self.right and time.monotonic() >= self.right_at:
            right, self.right = self.right, None
            return right or WRONG
        return WRONG


def hold(scene, sources, count, shape, rate=4000):
    """Opens `count` connections, calls shape(socket, number) on each, and returns the open sockets."""
    kept, pause = [], 1 / rate
    for at in range(count):
        began = time.monotonic()
        try:
            end = connect(
                scene.target if ":" not in sources[0] else (scene.six, scene.target[1]),
                sources[at % len(sources)],
                timeout=2,
            )
            end.settimeout(2)
            kept.append(end)
            shape(end, at)
        except OSError:
            pass
        if (left := pause - (time.monotonic() - began)) > 0:
            time.sleep(left)
    return kept


def negotiate_frame():
    contexts = struct.pack("<HHIHHH", 1, 38, 0, 1, 32, 1) + os.urandom(32)
    body = struct.pack("<HHHHI16sIHH", 36, 1, 1, 0, 0x46, os.urandom(16), 104, 1, 0) + struct.pack("<H", 0x0311)
    header = struct.pack("<4sHHIHHIIQIIQ16s", b"\xfeSMB", 64, 0, 0, 0, 31, 0, 0, 0, 0, 0, 0, bytes(16))
    message = header + body + bytes(-len(body) % 8) + contexts
    return struct.pack(">I", len(message)) + message


def halves(end, at):
    """Sends one of six beginnings: nothing, half a prefix, a cut frame, a large frame, NEGOTIATE, a cut request."""
    frame = negotiate_frame()
    data = (b"", b"\0", frame[:50], b"\0\1\xff\0" + bytes(1000), frame, frame + b"\0\1\0\0\xfeSMB")[at % 6]
    if data:
        end.sendall(data)


def half_open(scene, say, count=3000):
    """Half-open connections and partial frames from one address: others are served, memory returns."""
    raise_limit()
    with scene.siege() as siege:
        time.sleep(1.5)
        calm = percentile(siege.honest.since("echo", siege.began), 0.99)
        calm_make = percentile(siege.honest.since("make", siege.began), 0.99)
        siege.began, began = time.monotonic(), time.monotonic()
        kept = hold(scene, ["198.19.249.2"], count, halves)
        took = time.monotonic() - began
        if calm > 0.05 or took > count / 300:
            raise Unfit(f"{count} connections took {took:.1f} s, an ECHO {calm * 1e3:.0f} ms before them")
        time.sleep(0.5)
        echo = percentile(siege.honest.since("echo", siege.began), 0.99)
        make = percentile(siege.honest.since("make", siege.began), 0.99)
        say(
            f"{count} connections in {took:.1f} s; p99 of others' ECHO {calm * 1e3:.1f} -> {echo * 1e3:.1f} ms,"
            f" of create and delete {calm_make * 1e3:.1f} -> {make * 1e3:.1f} ms"
        )
        siege.newcomers_served(say)
        siege.memory_stays(say, growth=64 * MIB)
        for end in kept:
            end.close()
        siege.memory_returns(say)
        # On a busy machine with two cores up to 30 ms are normal.
        demand(echo <= max(2 * calm, 0.03), f"p99 of ECHO went from {calm * 1e3:.1f} to {echo * 1e3:.1f} ms")
        demand(
            make <= max(2 * calm_make, 0.06),
            f"p99 of create and delete went from {calm_make * 1e3:.1f} to {make * 1e3:.1f} ms",
        )


def raise_limit():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def ipv6(scene, say):
    """9: one IPv6 /56, 256 networks of 64 bits, cannot take all places for half-open connections."""
    raise_limit()
    scene.six = "2001:db8:ff:1::1"
    sources = [f"2001:db8:7:{n:x}::{host:x}" for host in (1, 2) for n in range(256)]
    began = time.monotonic()
    kept = hold(scene, sources, 4600, lambda end, at: None, rate=3000)
    # The server closes silent connections after 10 s, so all of them must be opened in less time.
    if (took := time.monotonic() - began) > 6:
        for end in kept:
            end.close()
        raise Unfit(f"4600 connections took {took:.1f} s")
    alive = 0
    for end in kept:
        end.setblocking(False)
        try:
            alive += end.recv(1) != b""
        except BlockingIOError:
            alive += 1
        except OSError:
            pass
    say(f"{alive} of 4600 connections from one /56 are held")
    found = at_once([lambda: logon_time(scene, "198.19.247.1"), lambda: other_six(scene)])
    for end in kept:
        end.close()
    for who, one in zip(("IPv4", "another /48"), found, strict=True):
        if isinstance(one, Exception):
            raise demand(False, f"a new client from {who} was refused: {one}")
        say(f"a newcomer from {who}: {one[0] * 1e3:.0f} ms")
        demand(one[0] < 2 and one[1] == 0, f"a new client from {who} waited {one[0]:.1f} s, status {one[1]:#x}")


def other_six(scene):
    began = time.monotonic()
    link = Link((scene.six, scene.target[1]), "2001:db8:9::1", timeout=10)
    status = link.guess(scene.user, ntlm.nt_hash(scene.password))
    link.close()
    return time.monotonic() - began, status


def noise(scene, say):
    """Senseless frames: each ends its connection, none ends the server."""
    chance, frame = random.Random(7), negotiate_frame()
    with scene.siege() as siege:
        for _ in range(1500):
            data = bytearray(frame)
            for _ in range(chance.choice((1, 2, 4, 16))):
                data[chance.randrange(4, len(data))] = chance.randrange(256)
            try:
                end = connect(scene.target, "198.19.246.2", timeout=1)
                end.sendall(bytes(data))
                end.shutdown(socket.SHUT_WR)
                end.settimeout(0.5)
                end.recv(4096)
                end.close()
            except OSError:
                pass
        siege.others_wait(say)
        siege.newcomers_served(say)
        siege.memory_stays(say, growth=64 * MIB)


ATTACKS = [
    ("01-password-oracle", password_oracle),
    ("08-neighbour", neighbour),
    ("09-ipv6", ipv6),
    ("a4-guessing", guessing),
    ("r1-half-open", half_open),
    ("p1-noise", noise),
]
__all__ = ["ATTACKS", "LOGON_FAILURE"]
