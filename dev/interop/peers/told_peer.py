"""Registers with the witnesses of a cluster for several addresses, and prints what they tell.

told_peer.py NET_NAME USER PASSWORD WITNESS:ADDRESS...: registers at each WITNESS for ADDRESS, naming no share. Prints
`ready`, then for each notification a line `MOMENT WITNESS ADDRESS KIND MESSAGES`, with nanoseconds of
CLOCK_MONOTONIC and the messages in JSON.
"""

import json
import socket
import sys
import threading
import time

import swn


def text(value):
    return socket.inet_ntoa(value) if isinstance(value, bytes) and len(value) == 4 else str(value)


SAYING = threading.Lock()


def listen(witness, at, address):
    while True:
        news = witness.news()
        moment = time.monotonic_ns()
        if news:
            kind, messages = news
            words = json.dumps([[state, text(value)] for state, value in messages])
            with SAYING:
                print(moment, at, address, kind, words, flush=True)


def main():
    net_name, user, password, *places = sys.argv[1:]
    threads = []
    for place in places:
        at, address = place.split(":")
        witness = swn.Witness(at, user, password)
        witness.register(net_name, None, address, f"told-{place}")
        threads.append(threading.Thread(target=listen, args=(witness, at, address), daemon=True))
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
