#!/usr/bin/env python3
"""torture_relay.py PORT ADDRESS: relays SMB connections from a port of this machine to ADDRESS.

A test that gives up a connection and comes back finds another node: before the relay opens the next connection
after one has ended, it prints `over` and waits for a line on its standard input, which comes when the failover
has ended. It prints `ready` at first. Other connections of the test end at
the server by the failover; towards the test they stay open, without a further word, because most tests keep one
that they do not use any more.
"""

import asyncio
import contextlib
import sys

SMB = 445


class Relay:
    def __init__(self, address):
        self.address = address
        # A connection has ended since the last failover.
        self.has_ended = False
        self.turn = asyncio.Lock()

    async def serve(self, reader, writer):
        async with self.turn:
            if self.has_ended:
                print("over", flush=True)
                await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
                self.has_ended = False
        try:
            there = await asyncio.open_connection(self.address, SMB)
            back = asyncio.ensure_future(copy(there[0], writer))
            await copy(reader, there[1])
            while await reader.read(1 << 16):
                pass
            back.cancel()
            await close(there[1])
        except OSError as fault:
            print(f"relay: {fault}", file=sys.stderr)
        finally:
            self.has_ended = True
            await close(writer)


async def copy(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


async def close(writer):
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def main():
    port, address = int(sys.argv[1]), sys.argv[2]
    relay = Relay(address)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", port)
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(main())
