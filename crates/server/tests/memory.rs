//! The memory that buffers of all connections hold: row R2 of the catalogue of
//! faults, and what an authenticated client can do to others. One test: the
//! count is the process's.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::net::Ipv4Addr;

use client::files::write_draft;
use client::*;
use frevo_net::buffer::Buf;
use frevo_net::buffer::budget::{self, Fullness};
use frevo_server::{Limits, Reload};
use frevo_wire::command::change_notify::{ChangeNotifyFlags, CompletionFilter, Request};

/// The credits that the answer to a request for 256 grants.
async fn granted(peer: &mut Peer, mount: &Mount) -> u16 {
    peer.on(mount, Draft::echo()).await.ok().header.credits
}

#[test]
fn credits_shrink_as_memory_fills_and_nobody_new_comes_when_it_is_full() {
    const LIMIT: usize = 64 << 20;
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        // A waiting request keeps only a part of its frame. With whole frames, 500 requests would
        // take 34 MiB.
        let (mut watcher, watched) = world.session("ann", &Offer::default()).await;
        let directory = watcher.open_file(&watched, &Want::directory("d")).await;
        let before = budget::in_use();
        for _ in 0..500 {
            let draft = Draft::new(Command::CHANGE_NOTIFY).with(|w| {
                let flags = ChangeNotifyFlags::EMPTY;
                let (file_id, completion_filter) = (directory, CompletionFilter::FILE_NAME);
                let output_buffer_length = 4096;
                Request { flags, output_buffer_length, file_id, completion_filter }.encode(w);
                w.bytes(&[0; 61_000]);
            });
            watcher.send(vec![watched.put(draft)], watched.via()).await;
            watcher.interim().await;
        }
        let more = budget::in_use().saturating_sub(before);
        assert!(more < 1 << 20, "{more} bytes in buffers");
        drop(watcher);
        // `hold` allocates buffers until `eighths` eighths of the memory limit are used.
        let hold = |eighths: usize| -> Vec<Buf> {
            let mut held = Vec::new();
            while budget::in_use() < LIMIT / 8 * eighths {
                held.push(Buf::with_capacity(64 << 10));
            }
            held
        };
        let limits = Limits { memory: LIMIT, ..Limits::default() };
        world.embedded.reload(Reload::new().limits(limits));
        let before = budget::in_use();
        assert!(before < LIMIT / 8, "{before}");
        assert!(granted(&mut peer, &mount).await > 1);

        let held = hold(4);
        assert_eq!(budget::fullness(), Fullness::Scarce);
        assert_eq!(granted(&mut peer, &mount).await, 1, "as many as the request took");
        let more = hold(7);
        assert_eq!(budget::fullness(), Fullness::Dire);
        assert_eq!(granted(&mut peer, &mount).await, 0);
        let rest = hold(8);
        assert_eq!(budget::fullness(), Fullness::Full);
        assert!(world.connect_from(Ipv4Addr::LOCALHOST.into()).is_some(), "newcomers have room");
        // Memory is short, but a connected client is still served. Its large requests are handled
        // one after another.
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let data = vec![7; 1 << 20];
        let drafts = (0..8).map(|n| mount.put(write_draft(file, n << 20, &data)));
        let mut waiting = Vec::new();
        for draft in drafts {
            waiting.extend(peer.send(vec![draft], mount.via()).await);
        }
        for id in waiting {
            let reply = peer.final_reply(id).await;
            assert_eq!(reply.ok().header.credits, 0, "none are given while it is full");
        }
        assert_eq!(world.content("f").len(), 8 << 20);
        peer.close(&mount, file).await;

        let beyond = hold(9);
        assert!(world.connect_from(Ipv4Addr::LOCALHOST.into()).is_none(), "not even for newcomers");
        drop((held, more, rest, beyond));
        assert_eq!(budget::fullness(), Fullness::Ample);
        assert!(budget::in_use() <= before + (2 << 20), "{} bytes", budget::in_use());
        assert!(granted(&mut peer, &mount).await > 1);
        assert!(world.connect_from(Ipv4Addr::LOCALHOST.into()).is_some());
    });
}
