"""One seeded stream of requests to two servers, compared answer by answer.

    differential_peer.py ADDRESS OTHER SHARE SEED REQUESTS OUT

OUT is JSON: {"requests": n, "differences": {name: [count, example]}}.  The stream is cut into scenes, each in a
folder of its own with equal files on both servers; a scene ends at a difference that leaves them in different states.
"""

import json
import os
import random
import struct
import sys

import raw
from differential import metadata, requests
from differential.pair import Differs, Pair, Report
from differential.scene import Scene

AREAS = {
    "create": metadata.create,
    "query": metadata.query,
    "set": metadata.set,
    "directory": metadata.directory,
    "io": requests.io,
    "compound": requests.compound,
    "notify": requests.notify,
    "names": requests.names,
}
# The order in which the areas take turns. CREATE has two turns.
TURNS = ["create", *AREAS]


def main():
    address, other, share, seed, requests, out = sys.argv[1:7]
    report, number = Report(), 0
    pair = Pair((address, other), int(os.environ["SMB_PORT"]), share, report)
    areas = os.environ.get("DIFFERENTIAL_AREAS", ",".join(TURNS)).split(",")
    while report.requests < int(requests):
        number += 1
        # Each scene has a random seed of its own, so that a scene that ends early does not change
        # the later scenes.
        rng = random.Random(f"{seed} {number}")
        area = areas[number % len(areas)]
        try:
            scene = Scene(pair, rng, number)
            AREAS[area](scene)
        except Differs:
            pass
        except raw.Refused as e:
            report.differ(f"{area}: refused on one side", f"scene {number}: {e}")
        except (OSError, struct.error) as e:
            # An address at the beginning of the error text names the server that ended the
            # connection.
            whose = "smbd" if str(e).startswith(other + " ") else "the server under test"
            report.differ(f"{area}: {whose}: {type(e).__name__}", f"scene {number}: {e}")
        # A new connection closes all handles that the last scene left open.
        pair.connect()
    with open(out, "w") as f:
        told = {"requests": report.requests, "scenes": number, "lost_by_smbd": report.lost_by_smbd}
        json.dump(told | {"differences": report.differences}, f, indent=1)


if __name__ == "__main__":
    main()
