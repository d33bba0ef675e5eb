//! Copies on the server: what is asked for, in which order, and what is done when the
//! server cannot.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;
use crate::world;

use std::sync::Arc;

use dialed::{ToEvil, on_paused_clock};
use evil::between::Between;
use evil::{Act, Asked, CONTENT, Manners};
use frevo_client::internal::{Dial, Dialing, Resolving};
use frevo_client::limits::REFUSED_FOR;
use frevo_client::{
    Cause, Client, CopyMethod, Credentials, Error, File, OpenOptions, Options, ServerName, Share,
};
use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::copychunk::{CopyRequest, CopyResponse};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::compound::Compound;
use frevo_wire::fscc::fsctl::{
    OffloadReadReply, OffloadReadRequest, OffloadToken, OffloadWriteReply, OffloadWriteRequest,
};
use frevo_wire::{Command, Header, Status};
use parking_lot::Mutex;
use world::{World, in_world};

/// The requests: IOCTLs by their code, reads and writes, sizes.
type Log = Arc<Mutex<Vec<String>>>;

fn named(message: &[u8], command: Command) -> Option<String> {
    let code = || ioctl::Request::parse(message).unwrap().ctl_code;
    match command {
        Command::READ => Some("read".into()),
        Command::WRITE => Some("write".into()),
        Command::QUERY_INFO => Some("size".into()),
        Command::SET_INFO => Some("set size".into()),
        Command::IOCTL => Some(
            match code() {
                CtlCode::DUPLICATE_EXTENTS_TO_FILE => "clone",
                CtlCode::OFFLOAD_READ => "offload read",
                CtlCode::OFFLOAD_WRITE => "offload write",
                CtlCode::SRV_REQUEST_RESUME_KEY => "key",
                CtlCode::SRV_COPYCHUNK_WRITE => "chunks",
                _ => "other",
            }
            .into(),
        ),
        _ => None,
    }
}

/// Listens to what goes to `server`.
fn counting(server: Arc<dyn Dial>, log: Log) -> Arc<Between> {
    let note = move |frame: Vec<u8>| {
        for (_, message) in Compound::new(&frame).flatten() {
            let Ok(header) = Header::parse(message) else { continue };
            log.lock().extend(named(message, header.command));
        }
        vec![frame]
    };
    Arc::new(Between { server, there: Arc::new(note), back: Arc::new(|frame| vec![frame]) })
}

async fn share_of(client: &Client, name: &str) -> Share {
    let user = Credentials::new("ann", "secret");
    let session = client.connect(ServerName::new("frevo"), user).await.unwrap();
    session.share(name).await.unwrap()
}

async fn pair(from: &Share, to: &Share) -> (File, File) {
    let source = from.open("from").await.unwrap();
    let target = OpenOptions::new().read(true).write(true).create(true);
    (source, target.open(to, "to").await.unwrap())
}

/// Frevo's server on a file system that may or may not share extents.
#[test]
fn no_byte_of_a_copy_comes_here() {
    in_world(async |world: &World| {
        let log = Log::default();
        let server = Arc::clone(&world.wire) as Arc<dyn Dial>;
        let dial = counting(server, Arc::clone(&log));
        let client = Client::with_dialer(Options::default(), dial);
        // The length is not a multiple of a sector, so an offloaded copy leaves a rest.
        let data: Vec<u8> = (0..20_000_001_u32).map(|at| (at / 7) as u8).collect();
        std::fs::write(world.path("from"), &data).unwrap();
        let share = share_of(&client, "data").await;
        let (source, target) = pair(&share, &share).await;
        log.lock().clear();
        let len = data.len() as u64;
        let how = source.copy_range_to(&target, 0, 0, len).await.unwrap().unwrap();
        assert!(std::fs::read(world.path("to")).unwrap() == data);
        let asked = std::mem::take(&mut *log.lock());
        assert!(!asked.iter().any(|what| what == "read" || what == "write"), "{asked:?}");
        let first = ["offload read", "size", "set size", "offload write"];
        assert_eq!(asked[..4], first, "that way first");
        // Offloading leaves less than a sector at the end, which another method must copy.
        match how {
            CopyMethod::Offloaded => panic!("not all of it: {asked:?}"),
            CopyMethod::Cloned => assert_eq!(asked[4..], ["clone"]),
            _ => assert_eq!(asked[4..], ["clone", "key", "chunks"]),
        }
        // The target is on another share of the same session, which the server can copy to as well.
        source.close().await.unwrap();
        target.close().await.unwrap();
        let other = share.session().share("sealed").await.unwrap();
        let (source, target) = pair(&share, &other).await;
        log.lock().clear();
        target.set_len(0).await.unwrap();
        assert!(source.copy_range_to(&target, 0, 0, len).await.unwrap().is_some());
        assert!(std::fs::read(world.path("to")).unwrap() == data);
        assert!(!log.lock().iter().any(|what| what == "read" || what == "write"));
    });
}

/// A scripted server, which answers each request by its name.
fn scripted(
    log: Log,
    answer: impl Fn(&str, &Asked<'_>) -> Act + Send + Sync + 'static,
) -> Arc<ToEvil> {
    ToEvil::new(Manners { keeps: true, ..Manners::default() }, move |asked| {
        let Some(what) = named(asked.message, asked.header.command) else { return Act::Honest };
        log.lock().push(what.clone());
        if asked.header.command == Command::QUERY_INFO {
            return empty_size();
        }
        answer(&what, asked)
    })
}

/// A FileAllInformation of an empty file.
fn empty_size() -> Act {
    Act::Changed(Box::new(|message| {
        message[8..12].fill(0);
        message.truncate(64);
        message.extend(evil::buffer(&[0; 104]));
    }))
}

fn answered(asked: &Asked<'_>, output: &[u8]) -> Act {
    let request = ioctl::Request::parse(asked.message).unwrap();
    let (ctl_code, file_id) = (request.ctl_code, request.file_id);
    let mut body = Vec::new();
    ioctl::Response { ctl_code, file_id, input: &[], output }.encode(&mut Writer::new(&mut body));
    Act::Body(body)
}

/// The answer to chunks that were all copied.
fn copied(request: &CopyRequest) -> Vec<u8> {
    let mut output = Vec::new();
    CopyResponse {
        chunks_written: request.chunks.len() as u32,
        chunk_bytes_written: 0,
        total_bytes_written: request.chunks.iter().map(|chunk| chunk.length).sum(),
    }
    .encode(&mut Writer::new(&mut output));
    output
}

/// Copies on a server that does not know some FSCTLs.
fn with(unknown: &'static [&'static str], test: impl AsyncFnOnce(&File, &File, &Log)) {
    let log = Log::default();
    let answer = move |what: &str, asked: &Asked<'_>| match what {
        _ if unknown.contains(&what) => Act::Refused(Status::INVALID_DEVICE_REQUEST),
        "chunks" => {
            let request = ioctl::Request::parse(asked.message).unwrap();
            answered(asked, &copied(&CopyRequest::parse(request.input).unwrap()))
        }
        "offload read" => {
            let request = ioctl::Request::parse(asked.message).unwrap();
            let transfer_length = OffloadReadRequest::parse(request.input).unwrap().copy_length;
            let token = OffloadToken { bytes: [7; 512] };
            let mut output = Vec::new();
            OffloadReadReply { size: 528, flags: 0, transfer_length, token }
                .encode(&mut Writer::new(&mut output));
            answered(asked, &output)
        }
        "offload write" => {
            let request = ioctl::Request::parse(asked.message).unwrap();
            let length_written = OffloadWriteRequest::parse(request.input).unwrap().copy_length;
            let mut output = Vec::new();
            OffloadWriteReply { size: 16, flags: 0, length_written }
                .encode(&mut Writer::new(&mut output));
            answered(asked, &output)
        }
        _ => Act::Honest,
    };
    let dial = scripted(Arc::clone(&log), answer);
    on_paused_clock(async {
        let client = Client::with_dialer(Options::default(), dial);
        let share = share_of(&client, "data").await;
        let (source, target) = pair(&share, &share).await;
        log.lock().clear();
        test(&source, &target, &log).await;
    });
}

/// The requests of one copy, and their outcome.
fn asked_of(
    unknown: &'static [&'static str],
    len: u64,
) -> (Result<Option<CopyMethod>, Error>, Vec<String>) {
    let mut found = None;
    with(unknown, async |source, target, log| {
        let how = source.copy_range_to(target, 0, 0, len).await;
        found = Some((how, std::mem::take(&mut *log.lock())));
    });
    found.unwrap()
}

/// Less than a sector, which is not offloaded.
const SHORT: u64 = CONTENT.len() as u64;

#[test]
fn what_the_server_cannot_the_next_way_does() {
    let (how, asked) = asked_of(&[], SHORT);
    assert_eq!(how.unwrap(), Some(CopyMethod::Cloned));
    assert_eq!(asked, ["size", "set size", "clone"]);
    let (how, asked) = asked_of(&["clone"], SHORT);
    assert_eq!(how.unwrap(), Some(CopyMethod::OnServer));
    assert_eq!(asked, ["size", "set size", "clone", "key", "chunks"]);
    for unknown in [&["clone", "offload read", "key"][..], &["clone", "offload read", "chunks"]] {
        let (how, asked) = asked_of(unknown, SHORT);
        assert_eq!(how.unwrap(), None, "the caller copies");
        assert!(!asked.iter().any(|what| what == "read" || what == "write"), "{asked:?}");
        assert_eq!(asked.last().unwrap(), "set size", "it is as long as it was");
    }
}

#[test]
fn a_copy_goes_on_in_the_next_session() {
    let log = Log::default();
    let dial = scripted(Arc::clone(&log), |what, asked| {
        let key = [asked.connection as u8; 24];
        let output = match what {
            "key" => [&key[..], &[0; 8]].concat(),
            "chunks" => {
                let request = ioctl::Request::parse(asked.message).unwrap();
                let request = CopyRequest::parse(request.input).unwrap();
                match (asked.connection, asked.nth) {
                    (0, nth) if nth > 5 => return Act::Close,
                    // The resume key belongs to an earlier session, so the server does not find it.
                    _ if request.source_key != key => {
                        return Act::Refused(Status::OBJECT_NAME_NOT_FOUND);
                    }
                    _ => {}
                }
                copied(&request)
            }
            "size" | "set size" => return Act::Honest,
            _ => return Act::Refused(Status::INVALID_DEVICE_REQUEST),
        };
        answered(asked, &output)
    });
    on_paused_clock(async {
        let client = Client::with_dialer(Options::default(), dial);
        let share = share_of(&client, "data").await;
        let (source, target) = pair(&share, &share).await;
        let how = source.copy_range_to(&target, 0, 0, 64 << 20).await;
        assert_eq!(how.unwrap(), Some(CopyMethod::OnServer));
        let count = |what: &str| log.lock().iter().filter(|one| *one == what).count();
        assert_eq!(count("key"), 2);
        // The copy needs four requests, but six were sent: the first answer of one request was lost
        // and its repetition refused, so it was sent three times.
        assert_eq!(count("chunks"), 6);
    });
}

/// Each session ends before the key that was given in it is used.
#[test]
fn a_copy_whose_key_is_lost_again_and_again_ends() {
    let log = Log::default();
    let dial = scripted(Arc::clone(&log), |what, asked| match what {
        "key" => answered(asked, &[7; 32]),
        "chunks" if asked.nth == 0 => Act::Refused(Status::OBJECT_NAME_NOT_FOUND),
        "chunks" => Act::Close,
        "size" | "set size" => Act::Honest,
        _ => Act::Refused(Status::INVALID_DEVICE_REQUEST),
    });
    on_paused_clock(async {
        let client = Client::with_dialer(Options::default(), dial);
        let share = share_of(&client, "data").await;
        let (source, target) = pair(&share, &share).await;
        let error = source.copy_range_to(&target, 0, 0, 64 << 20).await.unwrap_err();
        assert_eq!(error.status(), Some(frevo_client::Status::OBJECT_NAME_NOT_FOUND));
        let keys = log.lock().iter().filter(|one| *one == "key").count();
        assert_eq!(keys, 33);
    });
}

/// A server of a cluster, at two addresses.
#[derive(Debug)]
struct AtTwo(Arc<ToEvil>);

impl Dial for AtTwo {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        self.0.dial(server)
    }

    fn addresses<'a>(&'a self, _: &'a ServerName) -> Resolving<'a> {
        Box::pin(std::future::ready(Ok(["one", "two"].map(ServerName::new).to_vec())))
    }
}

/// The target's share moves to another node under the copy. A key of the source's node means nothing
/// there, so the caller copies.
#[test]
fn a_copy_whose_target_moves_is_left_to_the_caller() {
    let log = Log::default();
    let known = Arc::clone(&log);
    let dial = ToEvil::new(Manners { keeps: true, ..Manners::default() }, move |asked| {
        let is_second = asked.message.ends_with(b"s\0e\0c\0o\0n\0d\0");
        let what = named(asked.message, asked.header.command);
        known.lock().extend(what.clone());
        match (asked.header.command, what.as_deref()) {
            // MS-SMB2 2.2.4: the node has no ServerGuid, so the handles go on.
            (Command::NEGOTIATE, _) => Act::Changed(Box::new(|message| message[72..88].fill(0))),
            (Command::TREE_CONNECT, _) if is_second && asked.connection == 0 && asked.nth > 1 => {
                Act::Refused(Status::BAD_NETWORK_NAME)
            }
            (Command::QUERY_INFO, _) => empty_size(),
            (_, Some("key")) => answered(asked, &[7; 32]),
            (_, Some("chunks")) if asked.connection == 0 => {
                Act::Refused(Status::NETWORK_NAME_DELETED)
            }
            (_, Some("chunks")) => Act::Refused(Status::OBJECT_NAME_NOT_FOUND),
            (Command::IOCTL, _) => Act::Refused(Status::INVALID_DEVICE_REQUEST),
            _ => Act::Honest,
        }
    });
    on_paused_clock(async {
        let client = Client::with_dialer(Options::default(), Arc::new(AtTwo(dial)));
        let share = share_of(&client, "first").await;
        let second = share.session().share("second").await.unwrap();
        let (source, target) = pair(&share, &second).await;
        assert_eq!(source.copy_range_to(&target, 0, 0, 64 << 20).await.unwrap(), None);
        assert!(!share.session().is_same(second.session()));
        let count = |what: &str| log.lock().iter().filter(|one| *one == what).count();
        assert!(count("chunks") >= 2 && count("key") <= 2, "{:?}", log.lock());
        assert_eq!(log.lock().last().unwrap(), "set size", "it is as long as it was");
    });
}

#[test]
fn a_long_copy_asks_for_the_size_once() {
    let (how, asked) = asked_of(&[], 3 << 28);
    assert_eq!(how.unwrap(), Some(CopyMethod::Offloaded));
    let part = ["offload read", "offload write"];
    let first = ["offload read", "size", "set size", "offload write"];
    assert_eq!(asked, [&first[..], &part, &part].concat());
    // This server gives out a token but refuses to write with it, so the file is cloned.
    let (how, asked) = asked_of(&["offload write"], 3 << 28);
    assert_eq!(how.unwrap(), Some(CopyMethod::Cloned));
    assert_eq!(asked, [&first[..], &["clone"; 3]].concat());
    let (how, _) = asked_of(&[], u64::MAX);
    assert!(matches!(how.unwrap_err().cause(), Cause::Usage(_)));
}

#[test]
fn a_file_system_that_cannot_is_not_asked_for_each_file() {
    let len = 1 << 20;
    with(&["clone", "offload read"], async |source, target, log| {
        let all = ["offload read", "size", "set size", "clone", "key", "chunks"];
        let copied = async || {
            let how = source.copy_range_to(target, 0, 0, len).await;
            assert_eq!(how.unwrap(), Some(CopyMethod::OnServer));
            std::mem::take(&mut *log.lock())
        };
        assert_eq!(copied().await, all);
        for _ in 0..10 {
            assert_eq!(copied().await, ["key", "chunks"]);
        }
        // After this time the path may lead to another file system, so all methods are tried again.
        tokio::time::advance(REFUSED_FOR).await;
        assert_eq!(copied().await, all);
        assert_eq!(copied().await, ["key", "chunks"]);
    });
}
