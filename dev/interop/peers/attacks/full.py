"""Attacks at full size, which take minutes."""

from . import strangers


def guessing(scene, say):
    """300 wrong passwords a second over 1,000 sockets for five minutes."""
    strangers.guessing(scene, say, seconds=300, networks=10, sockets=100)


def half_open(scene, say):
    """20,000 connections from one address."""
    strangers.half_open(scene, say, count=20_000)


ATTACKS = [("q13-guessing", guessing), ("q12-half-open", half_open)]
