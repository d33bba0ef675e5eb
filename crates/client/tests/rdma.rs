//! Servers that use the memory which the client lends them for a READ or WRITE, and invalidate its
//! keys, also wrong ones: MS-SMB2 3.2.5.11 and 3.2.5.12, MS-SMBD 3.1.5.8.
//!
//! The connections are in memory, and those of a real RDMA device if `FREVO_RDMA_ADDRESS` is its
//! address: soft RDMA in a guest, because most hosts have none.

#![cfg(feature = "rdma")]
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

mod evil;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use evil::{Act, Asked, CONTENT, Evil, Manners, Overheard, Script, pending, said};
use frevo_client::internal::{Dial, Dialing};
use frevo_client::{Client, Credentials, Error, OpenOptions, Options, ServerName, Share, Signing};
use frevo_net::rdma::{self, Fabric, Listener, connect};
use frevo_net::transport::{Detached, Stream};
use frevo_proto::Dialect;
use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::negotiate::{GlobalCapabilities, SecurityMode};
use frevo_wire::command::read::{self, Channel};
use frevo_wire::command::write;
use frevo_wire::file_id::FileId;
use frevo_wire::smbd::BufferDescriptor;
use frevo_wire::{Command, Status};
use parking_lot::Mutex;

/// Bytes of a request: they move by RDMA.
const LEN: u32 = 8192;

/// The place where connections are made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Medium {
    Memory,
    Device(IpAddr),
}

fn media() -> impl Iterator<Item = Medium> {
    let address = std::env::var("FREVO_RDMA_ADDRESS").ok();
    let device = address.map(|text| Medium::Device(text.parse().unwrap()));
    std::iter::once(Medium::Memory).chain(device)
}

/// Each connection is to a scripted server.
struct OverRdma {
    medium: Medium,
    fabric: Arc<Fabric>,
    dialect: Dialect,
    script: Arc<Script>,
    dialed: AtomicUsize,
}

impl std::fmt::Debug for OverRdma {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OverRdma")
    }
}

impl Dial for OverRdma {
    fn dial<'a>(&'a self, _: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            let manners = Manners { dialect: self.dialect, keeps: true, ..Manners::default() };
            let evil = Evil {
                manners: Arc::new(manners),
                script: Arc::clone(&self.script),
                overheard: Overheard::default(),
                connection: self.dialed.fetch_add(1, Ordering::SeqCst),
            };
            let Medium::Device(address) = self.medium else {
                let nowhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 445);
                let [client, server] = self.fabric.pair([nowhere; 2])?;
                tokio::spawn(evil.serve(Stream::Rdma(Arc::new(server))));
                return Ok(Stream::Rdma(Arc::new(client)));
            };
            let here = SocketAddr::new(address, 0);
            let listener = Listener::bind(&[here]).map_err(|(_, error)| error).unwrap();
            let accepting = async {
                let (detached, _) = listener.accept().await.unwrap();
                Detached::Rdma(Box::new(detached)).attach().unwrap()
            };
            let (server, client) = tokio::join!(accepting, connect(listener.addresses()[0]));
            // The listener must be polled, because it also receives the end of connections that it
            // has accepted.
            tokio::spawn(async move { while listener.accept().await.is_ok() {} });
            tokio::spawn(evil.serve(server));
            Ok(Stream::Rdma(Arc::new(client?)))
        })
    }
}

/// The outcome of a test: what was read, how many connections that took, and what the client asked of
/// its device.
struct Outcome<T> {
    result: Result<T, Error>,
    dialed: usize,
    /// The memory was lent through windows.
    has_windows: bool,
    counts: Option<[u64; 2]>,
}

/// Has a client with this dialect use a scripted server.
fn with<T>(
    medium: Medium,
    dialect: Dialect,
    script: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static,
    test: impl AsyncFnOnce(&Share) -> Result<T, Error>,
) -> Outcome<T> {
    // The counters belong to the process, so the tests of this file run one after the other.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let before = rdma::counts();
    let fabric = Fabric::new(1 << 30);
    let dial = Arc::new(OverRdma {
        medium,
        fabric: Arc::clone(&fabric),
        dialect,
        script: Arc::new(script),
        dialed: AtomicUsize::new(0),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let result = runtime.block_on(async {
        let options = Options::new()
            .sign(Signing::WhenAsked)
            .require_signing(false)
            .recover_for(Duration::from_secs(5));
        let client = Client::with_dialer(options, Arc::clone(&dial) as Arc<dyn Dial>);
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("evil"), user).await?;
        let share = session.share("data").await?;
        let tested = tokio::time::timeout(Duration::from_secs(60), test(&share)).await;
        let result = tested.expect("it has no end");
        session.log_off().await;
        result
    });
    drop(runtime);
    let counts = rdma::counts();
    let registered = rdma::registered_bytes() + fabric.registered_bytes();
    assert_eq!(registered, 0, "registered memory is left");
    assert_eq!((counts.regions, counts.windows), (0, 0), "regions or windows are left");
    let more = [counts.binds - before.binds, counts.invalidations - before.invalidations];
    let is_memory = medium == Medium::Memory;
    Outcome {
        result,
        dialed: dial.dialed.load(Ordering::SeqCst),
        has_windows: is_memory || more[0] > 0,
        counts: (!is_memory).then_some(more),
    }
}

async fn read(share: &Share) -> Result<Vec<u8>, Error> {
    let file = share.open("known").await?;
    let bytes = file.read_bytes(0, LEN).await?;
    Ok(bytes.to_vec())
}

/// The channel and the key of a READ or WRITE.
fn lent(asked: &Asked<'_>) -> Option<(Channel, u32)> {
    let (channel, info) = match asked.header.command {
        Command::READ => {
            let request = read::Request::parse(asked.message).unwrap();
            (request.channel, request.channel_info)
        }
        Command::WRITE => {
            let request = write::Request::parse(asked.message).unwrap();
            (request.channel, request.channel_info)
        }
        _ => return None,
    };
    if channel == Channel::NONE {
        return None;
    }
    let first = BufferDescriptor::parse_all(info).unwrap()[0];
    Some((channel, first.token))
}

/// A frame that invalidates a key: its prefix has the key, as that of a send queue.
fn invalidating(message: &[u8], key: u32) -> Act {
    let len = u32::try_from(message.len()).unwrap() | 1 << 24;
    let mut frame = [len.to_be_bytes(), key.to_be_bytes()].concat();
    frame.extend_from_slice(message);
    Act::Bytes(frame)
}

/// The answer to a READ that says all data was moved.
fn moved(asked: &Asked<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    let response = read::Response { data_remaining: LEN, ..read::Response::new(&[]) };
    response.encode(&mut Writer::new(&mut body));
    said(&asked.header, Status::SUCCESS, &body)
}

/// Answers the READs of the first connection so; those of further ones have their data in the message.
fn first_reads(
    act: impl Fn(&Asked<'_>, u32) -> Act + Send + Sync + 'static,
) -> impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static {
    move |asked| match lent(asked) {
        Some((Channel::RDMA_V1_INVALIDATE, key)) if asked.connection == 0 => act(asked, key),
        Some((Channel::RDMA_V1, _)) if asked.connection == 0 => {
            Act::Bytes(evil::framed(&moved(asked)))
        }
        _ => Act::Honest,
    }
}

#[test]
fn the_server_invalidates_the_key_with_the_answer_or_the_client_does() {
    for (medium, is_invalidated) in media().flat_map(|medium| [(medium, true), (medium, false)]) {
        let script = first_reads(move |asked, key| match is_invalidated {
            true => invalidating(&moved(asked), key),
            false => Act::Bytes(evil::framed(&moved(asked))),
        });
        let outcome = with(medium, Dialect::SMB_3_1_1, script, async |share| {
            let mut all = Vec::new();
            for _ in 0..5 {
                all.extend(read(share).await?);
            }
            Ok(all)
        });
        assert_eq!(outcome.result.unwrap().len(), 5 * LEN as usize);
        assert_eq!(outcome.dialed, 1);
        if let Some([binds, invalidations]) = outcome.counts {
            assert!(matches!(binds, 0 | 5), "{binds}");
            assert_eq!(invalidations, if is_invalidated { binds } else { 0 });
        }
    }
}

/// SMB 3.0 has no invalidation: MS-SMB2 2.2.19.
#[test]
fn a_server_of_smb_3_0_is_not_asked() {
    for medium in media() {
        let asked_for = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked_for);
        let script = move |asked: &Asked<'_>| match lent(asked) {
            Some((channel, _)) => {
                seen.lock().push(channel);
                Act::Bytes(evil::framed(&moved(asked)))
            }
            None if asked.header.command == Command::IOCTL => Act::Body(validated()),
            None => Act::Honest,
        };
        let outcome = with(medium, Dialect::SMB_3_0, script, read);
        assert_eq!(outcome.result.unwrap().len(), LEN as usize);
        assert_eq!(outcome.dialed, 1);
        assert!(outcome.counts.is_none_or(|[binds, _]| binds == 0));
        assert_eq!(*asked_for.lock(), [Channel::RDMA_V1]);
    }
}

/// The answer of a server of SMB 3.0 to VALIDATE_NEGOTIATE_INFO.
fn validated() -> Vec<u8> {
    let all = GlobalCapabilities::LARGE_MTU
        | GlobalCapabilities::LEASING
        | GlobalCapabilities::ENCRYPTION;
    let mode = SecurityMode::SIGNING_ENABLED.0.to_le_bytes();
    let output =
        [&all.0.to_le_bytes()[..], &[9; 16], &mode[..2], &0x0300_u16.to_le_bytes()].concat();
    let (ctl_code, file_id) = (CtlCode::VALIDATE_NEGOTIATE_INFO, FileId::ALL_ONES);
    let mut body = Vec::new();
    let response = ioctl::Response { ctl_code, file_id, input: &[], output: &output };
    response.encode(&mut Writer::new(&mut body));
    body
}

/// Also the answer that refuses may invalidate the key.
#[test]
fn a_refusal_may_invalidate_the_key() {
    for medium in media() {
        let script = first_reads(|asked, key| {
            let body = [9, 0, 0, 0, 0, 0, 0, 0, 0];
            invalidating(&said(&asked.header, Status::ACCESS_DENIED, &body), key)
        });
        let outcome = with(medium, Dialect::SMB_3_1_1, script, read);
        if outcome.has_windows {
            assert_eq!(outcome.result.unwrap_err().status(), Some(Status::ACCESS_DENIED.into()));
            assert_eq!(outcome.dialed, 1);
            assert!(outcome.counts.is_none_or(|[_, invalidations]| invalidations == 1));
        }
    }
}

#[test]
fn a_write_is_invalidated_as_a_read_is() {
    for medium in media() {
        let script = |asked: &Asked<'_>| match (asked.header.command, lent(asked)) {
            (Command::WRITE, Some((channel, key))) => {
                let mut body = Vec::new();
                write::Response { count: LEN }.encode(&mut Writer::new(&mut body));
                let message = said(&asked.header, Status::SUCCESS, &body);
                match channel {
                    Channel::RDMA_V1_INVALIDATE => invalidating(&message, key),
                    _ => Act::Bytes(evil::framed(&message)),
                }
            }
            _ => Act::Honest,
        };
        let outcome = with(medium, Dialect::SMB_3_1_1, script, async |share| {
            let file = OpenOptions::new().write(true).open(share, "known").await?;
            for _ in 0..3 {
                file.write_at(&[7; LEN as usize], 0).await?;
            }
            Ok(())
        });
        outcome.result.unwrap();
        assert_eq!(outcome.dialed, 1);
        assert!(outcome.counts.is_none_or(|[binds, invalidations]| binds == invalidations));
    }
}

/// Each ends the connection; the request is made again on a new one.
#[test]
fn wrong_keys_end_the_connection() {
    type Wrong = fn(&Asked<'_>, u32) -> Act;
    let all: [(&str, Wrong); 4] = [
        ("no key of the client", |asked, key| invalidating(&moved(asked), key ^ 0x0055_5500)),
        ("an old key of the window", |asked, key| invalidating(&moved(asked), key ^ 0x80)),
        ("with an interim response", |asked, key| invalidating(&pending(&asked.header), key)),
        ("with an answer that nobody waits for", |asked, key| {
            let mut header = asked.header;
            header.message_id += 1000;
            invalidating(&said(&header, Status::SUCCESS, &[9, 0, 0, 0, 0, 0, 0, 0, 0]), key)
        }),
    ];
    for (medium, (name, wrong)) in media().flat_map(|medium| all.map(|one| (medium, one))) {
        let outcome = with(medium, Dialect::SMB_3_1_1, first_reads(wrong), read);
        if outcome.has_windows {
            assert_eq!(outcome.result.unwrap(), CONTENT, "{name}");
            assert_eq!(outcome.dialed, 2, "{name}");
        }
    }
}

/// The key of one request with the answer to another one.
#[test]
fn the_key_of_another_request_ends_the_connection() {
    for medium in media() {
        let first = Mutex::new(None);
        let script = first_reads(move |asked, key| match first.lock().replace(key) {
            None => Act::Silence,
            Some(other) => invalidating(&moved(asked), other),
        });
        let outcome = with(medium, Dialect::SMB_3_1_1, script, async |share| {
            let (one, other) = tokio::join!(read(share), read(share));
            Ok([one?, other?].concat())
        });
        if outcome.has_windows {
            assert_eq!(outcome.result.unwrap(), [CONTENT, CONTENT].concat());
            assert_eq!(outcome.dialed, 2);
            assert!(outcome.counts.is_none_or(|[_, invalidations]| invalidations == 1));
        }
    }
}
