//! READ and WRITE by RDMA, with and without transforms, from a client that may do anything: MS-SMB2
//! 3.3.5.4, 3.3.5.12 and 3.3.5.13.
//!
//! The data moves over connections in memory, and over those of an RDMA device if
//! `FREVO_RDMA_ADDRESS` is its address: soft RDMA in a guest, because most hosts have none.

#![cfg(feature = "rdma")]
#![allow(clippy::disallowed_methods, missing_docs, reason = "tests")]

mod client;

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use client::files::{Mount, Want, read_draft, write_draft};
use client::logon::Logon;
use client::rdma::{Medium, here, open_settings};
use client::world::{World, in_frozen_world, in_world_with};
use client::{Draft, Header, HeaderFlags, Offer, Peer, Settings, Via};
use frevo_crypto::{DataNonce, Sender};
use frevo_net::rdma::{Endpoint, Fabric, Lending, Loan};
use frevo_net::socket::Reach;
use frevo_net::transport::{InterfaceKind, Listening};
use frevo_net::{Buf, Stream};
use frevo_proto::rdma_transform::{DataProof, RdmaTransforms, sole};
use frevo_server::internal::limits::{HELD_BACK_CREDITS, HELD_BACK_PER_CONNECTION};
use frevo_server::rate_rules::RateRule;
use frevo_wire::Status;
use frevo_wire::codec::Writer;
use frevo_wire::command::negotiate;
use frevo_wire::command::read::{self, Channel, ReadResponseFlags};
use frevo_wire::command::write;
use frevo_wire::dtyp::Guid;
use frevo_wire::file_id::FileId;
use frevo_wire::negotiate_context::{NegotiateContext, RdmaTransformId};
use frevo_wire::rdma_transform::{RdmaCryptoTransform, RdmaTransform, RdmaTransformType};
use frevo_wire::smbd::BufferDescriptor;
use tokio::time::{Instant, sleep};

const ENCRYPTION: RdmaTransformType = RdmaTransformType::ENCRYPTION;
const SIGNING: RdmaTransformType = RdmaTransformType::SIGNING;

/// Bytes of a transfer: two credits pay for them.
const LENGTH: usize = 100_000;

fn pattern() -> Vec<u8> {
    (0..LENGTH).map(|at| (at % 251) as u8).collect()
}

/// One client with a file, over RDMA.
struct Guest {
    peer: Peer,
    endpoint: Arc<Endpoint>,
    logon: Rc<Logon>,
    mount: Mount,
    file: FileId,
}

/// The protection of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Signed,
    Sealed,
}

impl Guest {
    async fn arrive(world: &World, medium: &Medium, offer: &Offer) -> Self {
        let (accepted, connected) = medium.connect().await;
        let connection = world.embedded.serve_connection(accepted).unwrap();
        world.keep(tokio::task::spawn_local(connection));
        let endpoint = Arc::new(connected);
        endpoint.established().await.unwrap();
        let mut peer = Peer::new(Stream::Rdma(Arc::clone(&endpoint)), Guid([0xDD; 16]));
        peer.negotiate(offer).await;
        let logon = peer.log_on("ann").await;
        let mount = peer.mount(&logon, "data").await;
        let file = peer.open_file(&mount, &Want::file("moved")).await;
        Self { peer, endpoint, logon, mount, file }
    }

    async fn ask(&mut self, draft: Draft, way: Way) -> client::Reply {
        let draft = self.mount.put(draft).charge(2);
        let logon = Rc::clone(&self.logon);
        let via = match way {
            Way::Plain => Via::Plain,
            Way::Signed => Via::Signed(&logon),
            Way::Sealed => Via::Sealed(&logon),
        };
        self.peer.ask(draft, via).await
    }

    /// Lends memory with these bytes, and asks for a WRITE of them.
    async fn write(&mut self, bytes: &[u8], channel: Channel, info: Info<'_>, way: Way) -> Status {
        let loan = self.endpoint.lend(Buf::copy_of(bytes), Lending::PeerReads).await.unwrap();
        let info = info(&descriptor(&loan));
        let mut draft = write_draft(self.file, 0, &[]);
        draft = Draft { body: Vec::new(), ..draft }.with(|w| {
            let request = write::Request::new(self.file, 0, &[]);
            let remaining_bytes = u32::try_from(bytes.len()).unwrap();
            write::Request { channel, remaining_bytes, channel_info: &info, ..request }.encode(w);
        });
        let status = self.ask(draft, way).await.status();
        drop(loan);
        status
    }

    /// Asks for a READ into lent memory. Returns the response and the memory, if it was a success.
    async fn read(&mut self, channel: Channel, way: Way) -> Result<(client::Reply, Buf), Status> {
        let buf = Buf::with_capacity(LENGTH);
        let loan = self.endpoint.lend(buf, Lending::PeerWrites(LENGTH)).await.unwrap();
        let draft = read_draft(self.file, 0, 0);
        let draft = Draft { body: Vec::new(), ..draft }.with(|w| {
            let length = u32::try_from(LENGTH).unwrap();
            let request = read::Request::new(self.file, 0, length);
            let channel_info = &descriptor(&loan);
            read::Request { channel, remaining_bytes: length, channel_info, ..request }.encode(w);
        });
        let reply = self.ask(draft, way).await;
        match reply.status() {
            Status::SUCCESS => Ok((reply, loan.take_back().await.unwrap())),
            status => Err(status),
        }
    }

    /// Encrypts or signs bytes as a client that obeys the rules.
    fn protected(&self, kind: RdmaTransformType, bytes: &mut [u8]) -> DataProof {
        if kind == ENCRYPTION {
            return DataProof::encrypt(bytes, self.logon.keys.sealing.as_ref().unwrap()).unwrap();
        }
        let nonce = DataNonce::new(self.peer.next_id, Sender::Client);
        DataProof::sign(bytes, &self.logon.signing, nonce).unwrap()
    }

    /// The content of the file, read in the message.
    async fn content(&mut self) -> Vec<u8> {
        let draft = self.mount.put(read_draft(self.file, 0, 65_536));
        let logon = Rc::clone(&self.logon);
        let reply = self.peer.ask(draft, Via::Signed(&logon)).await;
        match reply.status() {
            Status::END_OF_FILE => Vec::new(),
            _ => client::files::data(&reply).to_vec(),
        }
    }
}

/// Makes the channel information of the descriptors.
type Info<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

fn descriptor(loan: &Loan) -> [u8; 16] {
    let remote = loan.remote();
    BufferDescriptor { offset: remote.address, token: remote.key, length: remote.length }.to_bytes()
}

fn described(channel: Channel, transforms: Vec<RdmaCryptoTransform<'_>>, at: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    RdmaTransform { channel, transforms, descriptors: at }.encode(&mut Writer::new(&mut bytes));
    bytes
}

fn offer(transforms: &[u16]) -> Offer {
    Offer { rdma_transforms: transforms.to_vec(), ..Offer::default() }
}

/// The chosen transforms of a NEGOTIATE response.
fn chosen(reply: &client::Reply) -> Option<Vec<RdmaTransformId>> {
    let response = negotiate::Response::parse(&reply.message).unwrap();
    response.negotiate_contexts.into_iter().find_map(|context| match context {
        NegotiateContext::RdmaTransform(ids) => Some(ids),
        _ => None,
    })
}

#[test]
fn transforms_are_negotiated_where_there_is_rdma() {
    in_world_with(open_settings(), async |world| {
        // MS-SMB2 3.3.5.4: a server without RDMA ignores the context, even if it is malformed.
        let reply = world.connect().try_negotiate(&offer(&[1, 2])).await;
        assert_eq!(chosen(&reply), None);
        let reach = Some(vec![Reach::of(IpAddr::from([192, 0, 2, 1]))]);
        let rdma = Listening { interface: InterfaceKind::Rdma, reach };
        world.server.listening.set(vec![rdma]).unwrap();
        let both = vec![RdmaTransformId::ENCRYPTION, RdmaTransformId::SIGNING];
        for (offered, expected) in [
            (&[2, 1][..], Some(both)),
            (&[1, 9], Some(vec![RdmaTransformId::ENCRYPTION])),
            (&[9], Some(vec![RdmaTransformId::NONE])),
            (&[0], Some(vec![RdmaTransformId::NONE])),
            (&[], None),
        ] {
            let reply = world.connect().try_negotiate(&offer(offered)).await;
            assert_eq!(chosen(&reply), expected, "{offered:?}");
        }
        // With AES-CMAC as signing algorithm, only encryption is offered for RDMA data, because a
        // signature of file data could be used as the signature of a message.
        let cmac = Offer { signing: vec![1], ..offer(&[1, 2]) };
        let reply = world.connect().try_negotiate(&cmac).await;
        assert_eq!(chosen(&reply), Some(vec![RdmaTransformId::ENCRYPTION]));
        let clear = Offer { ciphers: Vec::new(), ..offer(&[1, 2]) };
        let reply = world.connect().try_negotiate(&clear).await;
        assert_eq!(chosen(&reply), Some(vec![RdmaTransformId::SIGNING]));
        // The context is malformed if its list is empty, or if it occurs twice.
        for ids in [vec![vec![]], vec![vec![1], vec![1]]] {
            let mut peer = world.connect();
            let contexts = std::iter::once(NegotiateContext::PreauthIntegrity {
                hash_algorithms: vec![frevo_wire::negotiate_context::HashAlgorithm::SHA_512],
                salt: &[1; 32],
            });
            let transforms = ids.into_iter().map(|ids| {
                NegotiateContext::RdmaTransform(ids.into_iter().map(RdmaTransformId).collect())
            });
            let draft =
                Offer::default().draft_with(peer.guid, contexts.chain(transforms).collect());
            peer.ask(draft, Via::Plain).await.expect(Status::INVALID_PARAMETER);
        }
    });
}

#[test]
fn without_rdma_no_channel_is_there() {
    in_world_with(open_settings(), async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("moved")).await;
        let at = BufferDescriptor { offset: 4096, token: 7, length: 4096 }.to_bytes();
        for channel in [1, 2, 3, 4].map(Channel) {
            let draft = Draft { body: Vec::new(), ..write_draft(file, 0, &[]) }.with(|w| {
                let request = write::Request::new(file, 0, &[]);
                let channel_info = &at;
                write::Request { channel, remaining_bytes: 4096, channel_info, ..request }
                    .encode(w);
            });
            peer.on(&mount, draft).await.expect(Status::INVALID_PARAMETER);
            let draft = Draft { body: Vec::new(), ..read_draft(file, 0, 0) }.with(|w| {
                let request = read::Request::new(file, 0, 4096);
                let channel_info = &at;
                read::Request { channel, remaining_bytes: 4096, channel_info, ..request }.encode(w);
            });
            peer.on(&mount, draft).await.expect(Status::INVALID_PARAMETER);
        }
    });
}

#[test]
fn data_moves_as_protected_as_its_message() {
    here(&async |world, medium| {
        for cipher in [1, 2, 3, 4] {
            let offer = Offer { ciphers: vec![cipher], ..offer(&[1, 2]) };
            let mut guest = Guest::arrive(world, medium, &offer).await;
            assert_eq!(guest.peer.terms().rdma_transforms, RdmaTransforms::ALL);
            for (way, kind) in
                [(Way::Plain, None), (Way::Signed, Some(SIGNING)), (Way::Sealed, Some(ENCRYPTION))]
            {
                let mut bytes = pattern();
                bytes[7] = cipher as u8;
                bytes[8] = way as u8;
                let plain = bytes.clone();
                let status = match kind {
                    None => guest.write(&bytes, Channel::RDMA_V1, &<[u8]>::to_vec, way).await,
                    Some(kind) => {
                        let proof = guest.protected(kind, &mut bytes);
                        let info: Info<'_> =
                            &|at| described(Channel::RDMA_V1, vec![proof.transform()], at);
                        guest.write(&bytes, Channel::RDMA_TRANSFORM, info, way).await
                    }
                };
                assert_eq!(status, Status::SUCCESS, "{cipher} {way:?}");
                assert_eq!(world.content("moved"), plain, "{cipher} {way:?}");
                let (reply, mut data) = guest.read(Channel::RDMA_V1, way).await.unwrap();
                assert_eq!(data.len(), LENGTH);
                check_answer(&guest, &reply, kind, &mut data);
                assert_eq!(data[..], plain, "{cipher} {way:?}");
            }
        }
    });
}

/// Checks the answer to a READ, and decrypts its data.
fn check_answer(
    guest: &Guest,
    reply: &client::Reply,
    kind: Option<RdmaTransformType>,
    data: &mut Buf,
) {
    let response = read::Response::parse(&reply.message).unwrap();
    assert_eq!(response.data_remaining as usize, LENGTH);
    let Some(kind) = kind else {
        assert_eq!(response.flags, ReadResponseFlags::EMPTY);
        assert_eq!(response.data, b"");
        return;
    };
    assert_eq!(response.flags, ReadResponseFlags::RDMA_TRANSFORM);
    assert_eq!(reply.sealed, kind == ENCRYPTION);
    let transform = RdmaTransform::parse(response.data).unwrap();
    assert_eq!((transform.channel, transform.descriptors), (Channel::NONE, &[][..]));
    let only = sole(&transform, kind).unwrap();
    let proof = DataProof::received(&only, guest.peer.terms().cipher).unwrap();
    if kind == ENCRYPTION {
        proof.decrypt(data, guest.logon.keys.opening.as_ref().unwrap()).unwrap();
    } else {
        assert!(proof.is_of(data, &guest.logon.signing));
    }
}

/// The ciphertext travels, not the data.
#[test]
fn sealed_data_is_not_readable_on_its_way() {
    here(&async |world, medium| {
        let mut guest = Guest::arrive(world, medium, &offer(&[1, 2])).await;
        world.file("moved", pattern());
        let (_, data) = guest.read(Channel::RDMA_V1, Way::Sealed).await.unwrap();
        let same = data.iter().zip(pattern()).filter(|(a, b)| **a == *b).count();
        assert!(same < LENGTH / 50, "{same} bytes are those of the file");
    });
}

#[test]
fn altered_data_is_refused_and_not_written() {
    here(&async |world, medium| {
        let mut guest = Guest::arrive(world, medium, &offer(&[1, 2])).await;
        for (way, kind, status) in [
            (Way::Sealed, ENCRYPTION, Status::AUTH_TAG_MISMATCH),
            (Way::Signed, SIGNING, Status::INVALID_SIGNATURE),
        ] {
            for at in [0, 4095, 4096, LENGTH - 1] {
                let mut bytes = pattern();
                let proof = guest.protected(kind, &mut bytes);
                bytes[at] ^= 1;
                let info: Info<'_> = &|at| described(Channel::RDMA_V1, vec![proof.transform()], at);
                let answer = guest.write(&bytes, Channel::RDMA_TRANSFORM, info, way).await;
                assert_eq!(answer, status, "{way:?} {at}");
            }
            // The proof was made for the data of an earlier request, so it must not fit this data.
            let mut earlier = pattern();
            let _ = guest.protected(kind, &mut earlier);
            let mut bytes = vec![9; LENGTH];
            let proof = guest.protected(kind, &mut bytes);
            let info: Info<'_> = &|at| described(Channel::RDMA_V1, vec![proof.transform()], at);
            let answer = guest.write(&earlier, Channel::RDMA_TRANSFORM, info, way).await;
            assert_eq!(answer, status, "{way:?}");
            // The signature or the nonce has a wrong length, so the request is refused.
            let wrong: [fn(RdmaCryptoTransform<'_>) -> RdmaCryptoTransform<'_>; 4] = [
                |one| RdmaCryptoTransform { signature: &one.signature[..15], ..one },
                |one| RdmaCryptoTransform { signature: &[], ..one },
                |one| RdmaCryptoTransform { signature: &[7; 17], ..one },
                |one| RdmaCryptoTransform { nonce: &one.nonce[..11], ..one },
            ];
            for wrong in wrong {
                let info: Info<'_> =
                    &|at| described(Channel::RDMA_V1, vec![wrong(proof.transform())], at);
                let answer = guest.write(&bytes, Channel::RDMA_TRANSFORM, info, way).await;
                assert_eq!(answer, status, "{way:?}");
            }
        }
        assert_eq!(guest.content().await, b"", "nothing was written");
        guest.peer.expect_alive().await;
    });
}

/// MS-SMB2 3.3.5.2.10: a request that was refused with its data is not outstanding any more. One
/// that a client repeats on another channel is not put off for it.
#[test]
fn a_request_without_its_data_is_not_outstanding() {
    here(&async |world, medium| {
        let mut guest = Guest::arrive(world, medium, &offer(&[1, 2])).await;
        let mut bytes = pattern();
        let proof = guest.protected(SIGNING, &mut bytes);
        bytes[0] ^= 1;
        let info: Info<'_> = &|at| described(Channel::RDMA_V1, vec![proof.transform()], at);
        let answer = guest.write(&bytes, Channel::RDMA_TRANSFORM, info, Way::Signed).await;
        assert_eq!(answer, Status::INVALID_SIGNATURE);
        let repeated = write_draft(guest.file, 0, b"once").flags(HeaderFlags::REPLAY_OPERATION);
        let (sequence, header) = (Status(1), repeated.header);
        let repeated = Draft { header: Header { status: sequence, ..header }, ..repeated };
        guest.ask(repeated, Way::Signed).await.expect(Status::SUCCESS);
        assert_eq!(world.content("moved"), b"once");
    });
}

/// MS-SMB2 3.3.5.13: the transform is alone, and of the kind that the message has.
#[test]
fn transforms_of_another_kind_are_refused() {
    here(&async |world, medium| {
        let mut guest = Guest::arrive(world, medium, &offer(&[1, 2])).await;
        for (way, right) in
            [(Way::Plain, None), (Way::Signed, Some(SIGNING)), (Way::Sealed, Some(ENCRYPTION))]
        {
            for kind in [ENCRYPTION, SIGNING] {
                let mut bytes = pattern();
                let proof = guest.protected(kind, &mut bytes);
                let one = proof.transform();
                let unknown = RdmaCryptoTransform { transform_type: RdmaTransformType(3), ..one };
                let mut lists = vec![vec![], vec![one, one], vec![unknown], vec![one, unknown]];
                if right != Some(kind) {
                    lists.push(vec![one]);
                }
                for list in lists {
                    let info: Info<'_> = &|at| described(Channel::RDMA_V1, list.clone(), at);
                    let answer = guest.write(&bytes, Channel::RDMA_TRANSFORM, info, way).await;
                    assert_eq!(answer, Status::INVALID_PARAMETER, "{way:?} {list:?}");
                }
                for channel in [Channel::NONE, Channel::RDMA_TRANSFORM, Channel(7)] {
                    let info: Info<'_> = &|at| described(channel, vec![one], at);
                    let answer = guest.write(&bytes, Channel::RDMA_TRANSFORM, info, way).await;
                    assert_eq!(answer, Status::INVALID_PARAMETER, "{way:?} {channel:?}");
                }
            }
            let read = guest.read(Channel::RDMA_TRANSFORM, way).await;
            assert_eq!(read.err(), Some(Status::INVALID_PARAMETER), "{way:?}");
        }
        assert_eq!(guest.content().await, b"", "nothing was written");
    });
}

/// Signed and sealed requests never have their data in the clear, whatever was negotiated.
#[test]
fn protected_requests_do_not_move_data_in_the_clear() {
    here(&async |world, medium| {
        world.file("moved", b"content");
        for transforms in [&[][..], &[9], &[1], &[2], &[1, 2]] {
            let mut guest = Guest::arrive(world, medium, &offer(transforms)).await;
            let known = guest.peer.terms().rdma_transforms;
            for (way, kind, is_known) in
                [(Way::Signed, SIGNING, known.signing), (Way::Sealed, ENCRYPTION, known.encryption)]
            {
                for channel in [Channel::RDMA_V1, Channel::RDMA_V1_INVALIDATE] {
                    let answer = guest.write(&pattern(), channel, &<[u8]>::to_vec, way).await;
                    assert_eq!(answer, Status::INVALID_PARAMETER, "{transforms:?} {way:?}");
                }
                if is_known {
                    continue;
                }
                let read = guest.read(Channel::RDMA_V1, way).await;
                assert_eq!(read.err(), Some(Status::INVALID_PARAMETER), "{transforms:?} {way:?}");
                let mut bytes = pattern();
                let proof = guest.protected(kind, &mut bytes);
                let info: Info<'_> = &|at| described(Channel::RDMA_V1, vec![proof.transform()], at);
                let answer = guest.write(&bytes, Channel::RDMA_TRANSFORM, info, way).await;
                assert_eq!(answer, Status::INVALID_PARAMETER, "{transforms:?} {way:?}");
            }
            let (_, data) = guest.read(Channel::RDMA_V1, Way::Plain).await.unwrap();
            assert_eq!(&data[..7], b"content", "unprotected sessions are as they were");
        }
        assert_eq!(world.content("moved"), b"content");
    });
}

/// Keys count on their own connection alone: a request with another client's key ends the connection
/// of the one who asks, and neither memory nor file of another is touched.
#[test]
fn a_foreign_key_reaches_nothing() {
    here(&async |world, medium| {
        world.file("moved", pattern());
        for is_read in [true, false] {
            let mut owner = Guest::arrive(world, medium, &offer(&[])).await;
            let mut thief = Guest::arrive(world, medium, &offer(&[])).await;
            thief.peer.is_strict = false;
            let lending = if is_read { Lending::PeerWrites(LENGTH) } else { Lending::PeerReads };
            let memory =
                if is_read { Buf::with_capacity(LENGTH) } else { Buf::copy_of(&[0xEE; LENGTH]) };
            let loan = owner.endpoint.lend(memory, lending).await.unwrap();
            let (channel, info) = (Channel::RDMA_V1, descriptor(&loan));
            let length = u32::try_from(LENGTH).unwrap();
            let file = thief.file;
            let draft = if is_read {
                let request = read::Request::new(file, 0, length);
                let remaining_bytes = length;
                let channel_info = &info;
                let request = read::Request { channel, remaining_bytes, channel_info, ..request };
                Draft { body: Vec::new(), ..read_draft(file, 0, 0) }.with(|w| request.encode(w))
            } else {
                let request = write::Request::new(file, 0, &[]);
                let remaining_bytes = length;
                let channel_info = &info;
                let request = write::Request { channel, remaining_bytes, channel_info, ..request };
                Draft { body: Vec::new(), ..write_draft(file, 0, &[]) }.with(|w| request.encode(w))
            };
            let draft = thief.mount.put(draft).charge(2);
            thief.peer.send(vec![draft], Via::Plain).await;
            // The READs before the forged one may still be answered.
            let mut replies = 0;
            while thief.peer.frame().await.is_some() {
                replies += 1;
            }
            assert!(replies <= usize::from(is_read), "{replies} answers");
            let memory = loan.take_back().await.unwrap();
            if is_read {
                let of_file = memory.iter().zip(pattern()).filter(|(a, b)| **a == *b).count();
                assert!(of_file < LENGTH / 2, "{of_file} bytes of the file");
            }
            assert_eq!(world.content("moved"), pattern(), "nothing was written");
            owner.peer.expect_alive().await;
        }
    });
}

/// A client that goes is noticed also while so many of its requests wait for a limit that nothing is read.
#[test]
fn the_end_of_a_client_is_noticed_while_nothing_is_read() {
    let limit =
        RateRule { read: Some(64 << 10), burst: Duration::from_millis(10), ..RateRule::new("all") };
    let medium = Medium::Memory(Fabric::new(1 << 30));
    let settings = Settings { rates: vec![limit], ..open_settings() };
    in_frozen_world(settings, async |world| {
        world.file("moved", pattern());
        let mut guest = Guest::arrive(world, &medium, &Offer::default()).await;
        guest.peer.asks = 4 * HELD_BACK_CREDITS;
        guest.peer.expect_alive().await;
        guest.peer.asks = 1;
        for _ in 0..HELD_BACK_PER_CONNECTION + 4 {
            let read = guest.mount.put(read_draft(guest.file, 0, 60_000));
            guest.peer.send(vec![read], Via::Plain).await;
        }
        let waiting = || world.embedded.rate_status()[0].waiting;
        while waiting() < HELD_BACK_PER_CONNECTION {
            sleep(Duration::from_millis(1)).await;
        }
        let began = Instant::now();
        drop(guest);
        while waiting() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    });
}

/// Data that moves by RDMA passes the limits of rate, too, and that of a WRITE is fetched behind them.
#[test]
fn data_that_moves_by_rdma_keeps_limits_of_rate() {
    let limit = RateRule {
        read: Some(LENGTH as u64),
        write: Some(LENGTH as u64),
        burst: Duration::from_millis(10),
        ..RateRule::new("all")
    };
    let medium = Medium::Memory(Fabric::new(1 << 30));
    let settings = Settings { rates: vec![limit], ..open_settings() };
    in_frozen_world(settings, async |world| {
        let mut guest = Guest::arrive(world, &medium, &Offer::default()).await;
        let seconds = |began: Instant| began.elapsed().as_secs_f64();
        let began = Instant::now();
        for _ in 0..10 {
            let info: Info<'_> = &|at| at.to_vec();
            let status = guest.write(&pattern(), Channel::RDMA_V1, info, Way::Plain).await;
            assert_eq!(status, Status::SUCCESS);
        }
        // The first one passes at once.
        assert!((seconds(began) - 9.0).abs() <= 9.0 * 0.03, "writes: {}", seconds(began));
        let began = Instant::now();
        for _ in 0..10 {
            let (_, read) = guest.read(Channel::RDMA_V1, Way::Plain).await.unwrap();
            assert_eq!(*read, *pattern());
        }
        assert!((seconds(began) - 9.0).abs() <= 9.0 * 0.03, "reads: {}", seconds(began));
    });
}
