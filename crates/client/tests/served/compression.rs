//! Compression with a server that has it.
#![allow(missing_docs, reason = "tests")]

use crate::world;

use std::sync::Arc;

use frevo_client::{Compression, Encryption, OpenOptions, Options, Session};
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::Share;
use frevo_server::share::Compress;
use world::{World, in_changed_world, settings};

/// Runs a test with shares that compress what is asked for, and all. They show the folder `squeezed`.
fn in_squeezing_world(test: impl AsyncFnOnce(&World, &std::path::Path)) {
    let dir = tempfile::tempdir().unwrap();
    let vfs = Arc::new(PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap());
    let share = |name: &str| Share::disk(name, Arc::clone(&vfs) as _);
    let shares = [
        share("asked").compress(Compress::Asked),
        share("all").compress(Compress::All),
        share("off"),
    ];
    let path = dir.path();
    in_changed_world(
        settings(),
        |builder| builder.shares(shares),
        async move |world| test(world, path).await,
    );
}

fn text(len: usize) -> Vec<u8> {
    let words = (0u32..).flat_map(|at| format!("{} times {}, ", at % 97, at / 7).into_bytes());
    words.take(len).collect()
}

struct Carried {
    sent: u64,
    received: u64,
}

fn carried(session: &Session) -> Carried {
    let channels = session.channels();
    let sum = |of: fn(&frevo_client::ChannelInfo) -> u64| channels.iter().map(of).sum();
    Carried { sent: sum(|channel| channel.sent), received: sum(|channel| channel.received) }
}

const LEN: usize = 3_000_001;

#[test]
fn files_are_written_and_read_compressed() {
    in_squeezing_world(async |world, path| {
        let content = text(LEN);
        for encryption in [Encryption::AsServerAsks, Encryption::Required] {
            for (share, compression, sends, receives) in [
                ("asked", Compression::On, true, true),
                ("all", Compression::On, true, true),
                ("all", Compression::Auto, true, true),
                ("off", Compression::On, true, false),
                ("all", Compression::Off, false, false),
            ] {
                let options = Options::default().compression(compression).encryption(encryption);
                let session = world.session(options).await;
                let share_name = share;
                let share = session.share(share).await.unwrap();
                let how = OpenOptions::new().read(true).write(true).create(true).truncate(true);
                let file = how.open(&share, "f").await.unwrap();
                let before = carried(&session);
                file.write_all_at(&content, 0).await.unwrap();
                let written = carried(&session);
                assert!(std::fs::read(path.join("f")).unwrap() == content);
                let mut into = vec![0; LEN];
                file.read_exact_at(&mut into, 0).await.unwrap();
                assert!(into == content);
                let read = carried(&session);
                let is_less = |count: u64| count < LEN as u64 * 2 / 3;
                let what = format!("{share_name} {compression:?} {encryption:?}");
                assert_eq!(is_less(written.sent - before.sent), sends, "{what}");
                assert_eq!(is_less(read.received - written.received), receives, "{what}");
                session.log_off().await;
            }
        }
    });
}
