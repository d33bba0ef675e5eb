"""Attacks at full size, which take minutes."""

import json
import subprocess
import sys
import time
from pathlib import Path

from . import strangers
from .scene import Unfit, demand, percentile
from .strangers import logon_time

PROCESSES = 2


def guessers(scene, seconds, networks, sockets, rate):
    """Starts the processes that guess; each has its part of the networks and of the rate."""
    return [
        subprocess.Popen(
            [sys.executable, Path(__file__).with_name("guesser.py"), scene.target[0], str(scene.target[1]), scene.user]
            + [str(sockets), str(rate / PROCESSES), str(seconds), *networks[part::PROCESSES]],
            stdout=subprocess.PIPE,
            text=True,
        )
        for part in range(PROCESSES)
    ]


def guessing(scene, say, seconds=300, networks=10, sockets=100, rate=300):
    """300 wrong passwords a second over 1,000 sockets for five minutes, whether they are answered or not.

    Of a network's guesses at most one in two seconds counts for an account. One guess of each network is the right
    password: if `submitted` guesses went out, it counts with a chance of at most 0.5 * seconds / submitted.
    """
    names = [scene.network() for _ in range(networks)]
    calm = min(logon_time(scene, "198.19.248.6", scene.user2)[0] for _ in range(5))
    begun, elsewhere, near = time.monotonic(), [], []
    children = guessers(scene, seconds, names, sockets, rate)
    time.sleep(3)
    while time.monotonic() < begun + seconds - 3:
        elsewhere.append(logon_time(scene, "198.19.248.7"))
        if len(elsewhere) % 8 == 1:
            # The legitimate user logs on from the guessers' network, with an address that was not
            # used before.
            at = len(near)
            near.append(logon_time(scene, f"{names[at % networks]}.{100 + at // networks}"))
        time.sleep(0.25)
    outcomes = [json.loads(child.communicate(timeout=60)[0]) for child in children]
    submitted, hits = ([count for one in outcomes for count in one[what]] for what in ("submitted", "hits"))
    answers, resets, refused = (sum(one[what] for one in outcomes) for what in ("answers", "resets", "refused"))
    likely = sum(min(1, (0.5 * seconds + 1) / max(1, count)) for count in submitted)
    far, close = sorted(s for s, _ in elsewhere), sorted(s for s, _ in near)
    say(
        f"{sum(submitted)} guesses in {seconds} s ({sum(submitted) / seconds:.0f} a second) over {networks * sockets}"
        f" sockets of {networks} networks: {answers} answered, {resets} sockets reset before, {refused} refused;"
        f" {sum(hits)} of {networks} right ones counted where {likely:.1f} may"
    )
    say(
        f"{len(far)} logons from elsewhere: {percentile(far, 0.5) * 1e3:.0f} ms, p99"
        f" {percentile(far, 0.99) * 1e3:.0f} ms, at most {far[-1] * 1e3:.0f} ms ({calm * 1e3:.0f} ms without the flood)"
    )
    say(f"{len(close)} from the same networks: {percentile(close, 0.5) * 1e3:.0f} ms, at most {close[-1] * 1e3:.0f} ms")
    demand(
        sum(hits) <= likely + 2 * likely**0.5 + 1,
        f"{sum(hits)} of {networks} right guesses were checked, {likely:.1f} are allowed",
    )
    demand(all(status == 0 for _, status in elsewhere), "a logon from elsewhere was refused")
    demand(all(status == 0 for _, status in near), "a logon from the same network was refused")
    demand(percentile(far, 0.5) <= calm + 0.05, f"logons from elsewhere take {percentile(far, 0.5) * 1e3:.0f} ms")
    # Allow 50 ms for delays of the test machine.
    demand(close[-1] <= 2.05 + calm, f"a logon from the same network took {close[-1]:.2f} s")
    if sum(submitted) < 0.95 * rate * seconds:
        raise Unfit(f"only {sum(submitted) / seconds:.0f} guesses a second went out")


def half_open(scene, say):
    """20,000 connections from one address."""
    strangers.half_open(scene, say, count=20_000)


ATTACKS = [("q13-guessing", guessing), ("q12-half-open", half_open)]
