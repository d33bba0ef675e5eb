//! Files and directories through the whole client and the whole server.
#![allow(missing_docs, reason = "tests")]

use crate::world;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frevo_client::internal::Dial;
use frevo_client::internal::Dialing;
use frevo_client::{
    Cause, Cipher, Client, Credentials, Dialect, Encryption, File, FileAttributes, OpenOptions,
    Options, ServerName, SetMetadata,
};
use world::{in_world, settings};

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn what_is_written_is_read() {
    in_world(async |world| {
        let share = world.share().await;
        for len in [0, 1, 4096, 65_536, 65_537, 3_000_000] {
            let data = bytes(len);
            let name = format!("file-{len}");
            share.write(&name, &data).await.unwrap();
            assert_eq!(std::fs::read(world.path(&name)).unwrap(), data);
            assert_eq!(share.read(&name).await.unwrap(), data, "{len}");
            let small = share.read_small(&name).await.unwrap().map(|(data, _)| data);
            assert_eq!(small, (len <= 65_536).then_some(data), "{len}");
        }
    });
}

#[test]
fn every_protection_and_dialect() {
    let dialects =
        [Dialect::Smb202, Dialect::Smb210, Dialect::Smb300, Dialect::Smb302, Dialect::Smb311];
    in_world(async |world| {
        let data = bytes(2_000_000);
        for dialect in dialects {
            let options = Options::new().oldest(dialect).newest(dialect);
            let share = world.session(options).await.share("data").await.unwrap();
            share.write("x", &data).await.unwrap();
            assert!(share.read("x").await.unwrap() == data, "{dialect}");
        }
        for cipher in [Cipher::Aes128Ccm, Cipher::Aes128Gcm, Cipher::Aes256Ccm, Cipher::Aes256Gcm] {
            for share in ["data", "sealed"] {
                let encryption =
                    if share == "data" { Encryption::Required } else { Encryption::AsServerAsks };
                let options = Options::new().ciphers(vec![cipher]).encryption(encryption);
                let session = world.session(options).await;
                assert_eq!(session.info().unwrap().cipher, Some(cipher));
                let share = session.share(share).await.unwrap();
                share.write("x", &data).await.unwrap();
                assert!(share.read("x").await.unwrap() == data, "{cipher:?}");
            }
        }
    });
}

#[test]
fn many_requests_are_under_way_on_several_channels() {
    in_world(async |world| {
        let options = Options::new().channels(4);
        let session = world.session(options).await;
        assert_eq!(session.info().unwrap().channels, 4);
        let share = session.share("data").await.unwrap();
        let data = bytes(9_000_000);
        share.write("large", &data).await.unwrap();
        assert!(share.read("large").await.unwrap() == data);
        let file = share.open("large").await.unwrap();
        let mut part = vec![0; 4_000_000];
        assert_eq!(file.read_at(&mut part, 5_500_000).await.unwrap(), 3_500_000);
        assert!(part[..3_500_000] == data[5_500_000..]);
        let mut whole = Vec::new();
        let sink = |at: u64, piece: frevo_net::buffer::Buf| {
            assert_eq!(at, whole.len() as u64);
            whole.extend_from_slice(&piece);
            std::future::ready(Ok(()))
        };
        assert_eq!(file.fetch(0, u64::MAX, sink).await.unwrap(), data.len() as u64);
        assert!(whole == data);
    });
}

/// Makes one connection, and no other.
#[derive(Debug)]
struct Once(Arc<dyn Dial>, AtomicBool);

impl Dial for Once {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        if self.1.swap(true, Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        self.0.dial(server)
    }
}

#[test]
fn one_channel_is_enough_where_no_other_comes_about() {
    in_world(async |world| {
        let dial = Once(Arc::clone(&world.wire) as _, AtomicBool::new(false));
        let connect_timeout = Duration::from_millis(500);
        let options = Options::new().channels(4).connect_timeout(connect_timeout);
        let client = Client::with_dialer(options, Arc::new(dial));
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("frevo"), user).await.unwrap();
        assert_eq!(session.info().unwrap().channels, 1);
        session.share("data").await.unwrap().write("small", b"1").await.unwrap();
    });
}

#[test]
fn names_are_made_found_moved_and_removed() {
    in_world(async |world| {
        let share = world.share().await;
        share.create_dir_all("a/b/c").await.unwrap();
        share.write("a/b/c/f", b"x").await.unwrap();
        let refused = share.create_dir("a").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
        let refused = share.remove_dir("a/b").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::DirectoryNotEmpty);
        share.rename_if_not_exists("a/b/c/f", "a/g").await.unwrap();
        share.hard_link("a/g", "a/h").await.unwrap();
        let names: Vec<_> =
            share.list_dir("a").await.unwrap().iter().map(|e| e.file_name().to_owned()).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        let found = share.metadata("a/g").await.unwrap();
        assert!(found.is_file() && found.len() == 1);
        assert!(share.metadata("a").await.unwrap().is_dir());
        share.remove_file("a/g").await.unwrap();
        let missing = share.metadata("a/g").await.unwrap_err();
        assert!(missing.is_not_found(), "{missing}");
        assert!(missing.to_string().contains("smb://frevo/data/a/g"), "{missing}");
        assert!(share.open("../x").await.is_err());
    });
}

#[test]
fn the_other_links_of_a_replaced_file_stay_read_only() {
    in_world(async |world| {
        let share = world.share().await;
        let read_only = SetMetadata::new().attributes(FileAttributes::READONLY);
        for links in [1, 2] {
            share.write("old", b"old").await.unwrap();
            share.write("new", b"new").await.unwrap();
            if links == 2 {
                share.hard_link("old", "other").await.unwrap();
            }
            share.set_metadata("old", &read_only).await.unwrap();
            assert!(share.rename("new", "old").await.is_err());
            share.rename_over_read_only("new", "old").await.unwrap();
            assert_eq!(share.read("old").await.unwrap(), b"new");
            let found = share.metadata("old").await.unwrap().attributes();
            assert!(!found.contains(FileAttributes::READONLY));
        }
        let found = share.metadata("other").await.unwrap().attributes();
        assert!(found.contains(FileAttributes::READONLY), "{found:?}");
        assert_eq!(share.read("other").await.unwrap(), b"old");
        // If the source is missing, the rename fails, and the target must stay read-only.
        share.set_metadata("old", &read_only).await.unwrap();
        assert!(share.rename_over_read_only("absent", "old").await.is_err());
        let found = share.metadata("old").await.unwrap().attributes();
        assert!(found.contains(FileAttributes::READONLY), "{found:?}");
    });
}

#[test]
fn a_large_directory_is_listed_whole() {
    in_world(async |world| {
        let share = world.share().await;
        for at in 0..7_000 {
            std::fs::write(world.path(&format!("entry-{at:05}")), b"").unwrap();
        }
        let entries = share.list_dir("").await.unwrap();
        assert_eq!(entries.len(), 7_000);
        let some =
            share.read_dir("").await.unwrap().matching("entry-0001?").collect_all().await.unwrap();
        assert_eq!(some.len(), 10);
    });
}

#[test]
fn refusals_say_what_to_do() {
    in_world(async |world| {
        let wrong = world
            .client(Options::default())
            .connect(ServerName::new("frevo"), Credentials::new("ann", "wrong"))
            .await
            .unwrap_err();
        assert!(wrong.to_string().contains("user name or password"), "{wrong}");
        let session = world.session(Options::default()).await;
        let missing = session.share("nothing").await.unwrap_err();
        assert!(missing.to_string().contains("no share of that name"), "{missing}");
    });
    let settings = frevo_server::Settings {
        encryption: frevo_server::settings::Encryption::Off,
        ..settings()
    };
    world::in_world_with(settings, async |world| {
        let options = Options::new().encryption(Encryption::Required);
        let refused = world
            .client(options)
            .connect(ServerName::new("frevo"), Credentials::new("ann", "secret"))
            .await
            .unwrap_err();
        assert!(matches!(refused.cause(), Cause::Security(_)), "{refused}");
    });
    let _ = Client::default();
}

#[test]
fn a_cut_connection_is_a_pause() {
    in_world(async |world| {
        let share = world.share().await;
        let file = OpenOptions::new().read(true).write(true).create(true);
        let file: File = file.open(&share, "log").await.unwrap();
        for round in 0..20_u64 {
            if round % 5 == 4 {
                // The server closes all sessions, so the next write needs a new session and a
                // reconnected handle.
                for session in world.server.sessions() {
                    world.server.close_session(&session, "a test");
                }
            }
            file.write_all_at(&[round as u8; 10], round * 10).await.unwrap();
        }
        file.sync_all().await.unwrap();
        let content = std::fs::read(world.path("log")).unwrap();
        let expected: Vec<u8> = (0..20).flat_map(|round| [round; 10]).collect();
        assert_eq!(content, expected);
    });
}

#[test]
fn what_is_new_takes_the_place_of_nothing() {
    in_world(async |world| {
        use frevo_client::SetMetadata;
        use frevo_client::Status;
        use frevo_client::{AccessMask, FileAttributes};
        use std::time::Duration;
        let share = world.share().await;
        let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        share.write_new("new", b"one", Some(time)).await.unwrap();
        for data in [b"two".to_vec(), vec![2; 100_000]] {
            let refused = share.write_new("new", &data, Some(time)).await.unwrap_err();
            assert_eq!(refused.status(), Some(Status::OBJECT_NAME_COLLISION));
        }
        assert_eq!(share.read("new").await.unwrap(), b"one");
        let attributes = FileAttributes::HIDDEN | FileAttributes::READONLY;
        let basic = SetMetadata::new().created(time).attributes(attributes);
        share.set_metadata("new", &basic).await.unwrap();
        let found = share.metadata("new").await.unwrap();
        assert_eq!((found.created(), found.modified()), (time, time));
        assert_eq!(found.attributes(), attributes);
        // This file is hidden and read-only, so it can be opened for its attributes, but not for
        // writing.
        let look = |access| share.look_before_replacing("new", access);
        let refused = look(AccessMask::WRITE_DATA).await.unwrap_err();
        assert_eq!(refused.status(), Some(Status::ACCESS_DENIED));
        let (found, list) = look(AccessMask::EMPTY).await.unwrap();
        assert_eq!((found.len(), found.attributes()), (3, attributes));
        assert!(list.is_some_and(|list| list.dacl.is_some()));
        share.create_dir("folder").await.unwrap();
        let refused = share.look_before_replacing("folder", AccessMask::EMPTY).await.unwrap_err();
        assert_eq!(refused.status(), Some(Status::FILE_IS_A_DIRECTORY));
    });
}
