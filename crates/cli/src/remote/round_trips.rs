//! Tests of the round trips that commands take: over a network of memory that delays each frame, on
//! a clock that does not wait.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use frevo_client::internal::{Dial, Dialing};
use frevo_client::{Client, Credentials, Options, ServerName};
use frevo_net::frame_reader::FrameReader;
use frevo_net::memory::{self, MemoryStream};
use frevo_net::transport::Stream;
use frevo_server::{Server, UserList, vfs};
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until};

use super::arguments::Verb;
use super::{dispatch, logon};
use crate::arguments::{Arguments, Command};

/// The time that a frame takes in one direction.
const DELAY: Duration = Duration::from_millis(10);
/// Files of a folder: many times those that are processed at the same time.
const FILES: usize = 500;
/// Most round trips of a command that processes [`FILES`] small files, 64 at a time: eight rounds of
/// at most ten (a copy on the server needs these), and some for connections and listings. A file after
/// the other would need one for each file at least.
const ROUNDS: u32 = 100;

/// Dials the server of the test.
#[derive(Debug)]
struct Wire(mpsc::UnboundedSender<MemoryStream>);

impl Dial for Wire {
    fn dial<'a>(&'a self, _: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            let pair = || memory::pair(4 << 20, [at(50_000), at(445)]);
            let ((ours, near), (far, theirs)) = (pair(), pair());
            let _ = self.0.send(theirs);
            let (near, far) = (Arc::new(Stream::Memory(near)), Arc::new(Stream::Memory(far)));
            carry(Arc::clone(&near), Arc::clone(&far));
            carry(far, near);
            Ok(Stream::Memory(ours))
        })
    }
}

/// Carries frames in one direction, each [`DELAY`] later.
fn carry(from: Arc<Stream>, to: Arc<Stream>) {
    let (frames, mut late) = mpsc::unbounded_channel();
    tokio::task::spawn_local(async move {
        let mut reader = FrameReader::new(frevo_net::limits::FRAME_BYTES_MAX);
        while let Ok(Some(frame)) = reader.next(&from).await {
            let mut bytes = u32::try_from(frame.len()).unwrap().to_be_bytes().to_vec();
            bytes.extend_from_slice(&frame);
            let _ = frames.send((Instant::now() + DELAY, bytes));
        }
    });
    tokio::task::spawn_local(async move {
        while let Some((due, bytes)) = late.recv().await {
            sleep_until(due).await;
            if put(&to, &bytes).await.is_err() {
                return;
            }
        }
        to.abort();
    });
}

async fn put(to: &Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write_vectored(&[IoSlice::new(bytes)], false) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn verb(line: &[&str]) -> Box<Verb> {
    let all = std::iter::once("frevo").chain(line.iter().copied());
    match Arguments::try_parse_from(all).unwrap().command {
        Command::Remote(verb) => verb,
        other => panic!("{other:?}"),
    }
}

/// Runs a command and returns the round trips that it took, rounded up.
async fn trips(line: &[&str]) -> u32 {
    let begun = Instant::now();
    if let Err(failure) = dispatch(&verb(line)).await {
        panic!("{line:?}: {failure}");
    }
    let taken = begun.elapsed().as_millis().div_ceil((DELAY * 2).as_millis());
    u32::try_from(taken).unwrap()
}

/// Runs a test with a share of the folder `there`, which commands reach as `smb://ann@box/data`.
fn with_share(there: &Path, test: impl AsyncFnOnce()) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    LocalSet::new().block_on(&runtime.unwrap(), async {
        let server = Server::builder()
            .share("data", vfs::folder(there).unwrap())
            .accounts(Arc::new(UserList::new().user("ann", "secret")))
            .build()
            .unwrap();
        let (ends, mut heard) = mpsc::unbounded_channel();
        tokio::task::spawn_local(async move {
            while let Some(stream) = heard.recv().await {
                tokio::task::spawn_local(server.serve_connection(stream).unwrap());
            }
        });
        let client = Client::with_dialer(Options::default(), Arc::new(Wire(ends)) as _);
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("box"), user).await.unwrap();
        let share = session.share("data").await.unwrap();
        logon::reach_by(&"smb://ann@box/data".parse().unwrap(), &share);
        test().await;
        logon::log_off().await;
    });
}

/// Small files in `folder`.
fn fill(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    for number in 0..FILES {
        std::fs::write(folder.join(format!("f{number}")), format!("{number:05}")).unwrap();
    }
}

#[test]
fn many_small_files_do_not_wait_for_each_other() {
    let place = tempfile::tempdir().unwrap();
    let (here, there) = (place.path().join("here"), place.path().join("there"));
    fill(&here);
    for name in ["same", "gone", "moved", "old/sub"] {
        fill(&there.join(name));
    }
    std::fs::create_dir(there.join("new")).unwrap();
    let local = here.to_str().unwrap();
    let at = |path: &str| format!("smb://ann@box/data/{path}");
    let (same, gone, moved) = (&at("same"), &at("gone/*"), &at("moved/*"));
    let (copied, old, new, all) = (&at("copied/"), &at("old"), &at("new"), &at("same/*"));
    let back = place.path().join("back");
    let back = format!("{}/", back.display());
    with_share(&there, async || {
        let commands: [&[&str]; 14] = [
            &["sync", "--checksum", local, same],
            &["sync", "--checksum", same, local],
            &["sync", "--delete", "--exclude", "*.tmp", same, old],
            &["sync", "--delete", local, old],
            &["get", all, &back],
            &["get", "--update", all, &back],
            &["cp", all, copied],
            &["cp", "--update", all, copied],
            &["stat", "--json", all],
            &["attrib", "+h", all],
            &["du", all],
            &["cat", all],
            &["mv", moved, new],
            &["rm", gone],
        ];
        for line in commands {
            let count = trips(line).await;
            assert!(count <= ROUNDS, "{line:?} took {count} round trips");
        }
    });
    assert_eq!(std::fs::read_dir(there.join("gone")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(there.join("new")).unwrap().count(), FILES);
    assert_eq!(std::fs::read_dir(there.join("copied")).unwrap().count(), FILES);
    assert!(there.join("old/f7").is_file() && !there.join("old/sub").exists());
}

/// Folders are listed many at once by every command that walks a tree, and created in one round trip
/// each.
#[test]
fn many_folders_do_not_wait_for_each_other() {
    let place = tempfile::tempdir().unwrap();
    let (here, there) = (place.path().join("here"), place.path().join("there"));
    for number in 0..FILES {
        let name = format!("a/b/c/d{number}");
        std::fs::create_dir_all(here.join(&name)).unwrap();
        std::fs::create_dir_all(there.join("tree").join(name)).unwrap();
    }
    let local = here.to_str().unwrap();
    let at = |path: &str| format!("smb://ann@box/data/{path}");
    let (tree, new) = (&at("tree"), &at("new"));
    with_share(&there, async || {
        let commands: [&[&str]; 7] = [
            &["tree", tree],
            &["find", tree],
            &["du", "--summarize", tree],
            &["ls", "-R", tree],
            &["attrib", "-R", "+h", tree],
            &["put", "-r", local, new],
            &["rm", "-r", tree],
        ];
        for line in commands {
            let count = trips(line).await;
            assert!(count <= ROUNDS, "{line:?} took {count} round trips");
        }
    });
    assert_eq!(std::fs::read_dir(there.join("new/a/b/c")).unwrap().count(), FILES);
    assert!(!there.join("tree").exists());
}
