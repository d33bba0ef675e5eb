//! Large requests that come together: they are verified or unsealed together, and judged one by one.
//! Their large replies are signed or sealed together.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use frevo_crypto::{Cipher, SealingKey, SigningAlgorithm, SigningKey};
use frevo_proto::protection::Codec;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::client::draft::{pack, seal};
use crate::client::files::{data, read_draft, write_draft};
use crate::client::world::in_own_world;
use crate::client::*;
use crate::compression::{squeezed, squeezing};
use crate::protected::{By, Protected, Writes, malform};

/// Length of a WRITE's data: enough for a batch, and many fit the connection.
const LEN: usize = 9000;
/// WRITEs that are sent at once: more than one batch.
const COUNT: usize = 11;
const WRITES: Writes = Writes { count: COUNT, len: LEN };

/// Counts the requests that were checked, and the replies that were protected, together.
#[derive(Clone, Default)]
struct Batches(Arc<AtomicUsize>);

impl Batches {
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// The number of requests or replies in a line about a batch.
#[derive(Default)]
struct Frames(usize);

impl Visit for Frames {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if matches!(field.name(), "frames" | "replies") {
            self.0 = usize::try_from(value).unwrap();
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl Subscriber for Batches {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::TRACE && metadata.target() == "frevo::connection"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut frames = Frames::default();
        event.record(&mut frames);
        self.0.fetch_add(frames.0, Ordering::Relaxed);
    }

    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The algorithms whose messages are faster together on most processors.
const BATCHED: [By; 3] =
    [By::Sign(SigningAlgorithm::AesCmac), By::Seal(Cipher::Aes128Ccm), By::Seal(Cipher::Aes256Ccm)];

impl By {
    /// True if messages are faster together, which needs a processor with instructions for AES.
    fn gains(self) -> bool {
        match self {
            Self::Sign(algorithm) => SigningKey::new(algorithm, &[0; 16]).gains_by_batches(),
            Self::Seal(cipher) => SealingKey::new(cipher, &[0; 32]).gains_by_batches(),
        }
    }
}

/// Runs the test in a world, with the counter of frames that were checked together.
fn counted(test: &impl AsyncFn(&World, &Batches)) {
    let batches = Batches::default();
    tracing::subscriber::with_default(batches.clone(), || {
        in_world(async |world| test(world, &batches).await);
    });
}

/// The same with a server that compresses.
fn counted_compressing(test: &impl AsyncFn(&World, &Batches)) {
    let batches = Batches::default();
    tracing::subscriber::with_default(batches.clone(), || {
        in_own_world(false, &squeezing(), async |world| test(world, &batches).await);
    });
}

impl Protected {
    fn frames(&mut self, drafts: Vec<Draft>) -> Vec<Vec<u8>> {
        drafts.into_iter().map(|draft| self.frame(draft)).collect()
    }

    /// Sends all at once, so that the server finds them together.
    async fn send_all(&self, frames: &[Vec<u8>]) {
        let mut bytes = Vec::new();
        for frame in frames {
            bytes.extend_from_slice(&u32::try_from(frame.len()).unwrap().to_be_bytes());
            bytes.extend_from_slice(frame);
        }
        self.peer.send_bytes(&bytes).await;
    }
}

#[test]
fn writes_that_come_together_are_checked_together_where_it_pays() {
    counted(&async |world, batches| {
        for by in [
            By::Sign(SigningAlgorithm::AesCmac),
            By::Sign(SigningAlgorithm::AesGmac),
            By::Sign(SigningAlgorithm::HmacSha256),
            By::Seal(Cipher::Aes128Ccm),
            By::Seal(Cipher::Aes128Gcm),
            By::Seal(Cipher::Aes256Ccm),
            By::Seal(Cipher::Aes256Gcm),
        ] {
            let mut writer = Protected::open(world, by).await;
            batches.take();
            let frames = writer.frames_of(WRITES);
            writer.send_all(&frames).await;
            assert_eq!(writer.statuses(COUNT).await, [Status::SUCCESS; COUNT], "{by:?}");
            let content = world.content("data");
            assert!((0..COUNT).all(|at| WRITES.is_in(&content, at)), "{by:?}");
            let checked = batches.take();
            // Some messages may arrive alone, for instance the last one, and are then checked
            // alone.
            let expected = if by.gains() { COUNT - 2..=COUNT } else { 0..=0 };
            assert!(expected.contains(&checked), "{by:?}: {checked} checked together");
            writer.peer.expect_alive_in(&writer.mount).await;
        }
    });
}

#[test]
fn replies_to_reads_that_come_together_are_protected_together_where_it_pays() {
    counted(&async |world, batches| {
        for by in [
            By::Sign(SigningAlgorithm::AesCmac),
            By::Sign(SigningAlgorithm::AesGmac),
            By::Seal(Cipher::Aes128Ccm),
            By::Seal(Cipher::Aes256Ccm),
            By::Seal(Cipher::Aes128Gcm),
        ] {
            let content: Vec<u8> = (0..COUNT).flat_map(|at| vec![at as u8 + 1; LEN]).collect();
            world.file("data", &content);
            let mut writer = Protected::open(world, by).await;
            batches.take();
            let read = |at| read_draft(writer.file, (at * LEN) as u64, LEN as u32);
            let mut drafts: Vec<Draft> = (0..COUNT).map(read).collect();
            // A small reply (ECHO) must keep its place between the READ replies that are protected
            // on other threads.
            drafts.insert(5, Draft::echo());
            let frames = writer.frames(drafts);
            writer.send_all(&frames).await;
            let mut order = Vec::new();
            for at in 0..=COUNT {
                let reply = writer.peer.reply().await;
                reply.ok();
                assert_eq!(reply.sealed, matches!(by, By::Seal(_)));
                order.push(reply.header.message_id);
                if at != 5 {
                    let block = if at < 5 { at } else { at - 1 };
                    assert_eq!(data(&reply), vec![block as u8 + 1; LEN], "{by:?}");
                }
            }
            assert!(order.is_sorted(), "{order:?}");
            let protected = batches.take();
            let expected = if by.gains() { COUNT - 2..=COUNT } else { 0..=0 };
            assert!(expected.contains(&protected), "{by:?}: {protected} protected together");
        }
    });
}

/// MS-SMB2 3.3.5.2.4: the one with the wrong signature is refused, and nothing else changes.
#[test]
fn a_wrong_signature_among_right_ones_is_refused_alone() {
    let by = By::Sign(SigningAlgorithm::AesCmac);
    counted(&async |world, batches| {
        for wrong in 0..COUNT {
            let mut writer = Protected::open(world, by).await;
            batches.take();
            let mut frames = writer.frames_of(WRITES);
            // One bit is changed, in the data or in the Signature, so only this message must be
            // refused.
            frames[wrong][if wrong % 2 == 0 { 200 } else { 50 }] ^= 1;
            writer.send_all(&frames).await;
            writer.expect_refused(world, WRITES, wrong).await;
            assert_eq!(batches.take() > 0, by.gains(), "{by:?}");
        }
    });
}

/// MS-SMB2 3.3.5.2.1.1: the connection ends at a frame that does not unseal. Those before it are
/// answered, those behind it never happened.
#[test]
fn a_wrong_tag_ends_the_connection_in_its_turn() {
    for by in [By::Seal(Cipher::Aes128Ccm), By::Seal(Cipher::Aes256Ccm)] {
        counted(&async |world, batches| {
            for wrong in [0, 1, 4, 7, 8, COUNT - 1] {
                let mut writer = Protected::open(world, by).await;
                batches.take();
                let mut frames = writer.frames_of(WRITES);
                frames[wrong][300] ^= 1;
                writer.send_all(&frames).await;
                writer.expect_end_at(world, WRITES, wrong).await;
                assert_eq!(batches.take() > 0, by.gains(), "{by:?}");
            }
        });
    }
}

/// A frame that changes its session does so for those behind it, although they were checked before.
#[test]
fn requests_behind_a_logoff_find_no_session() {
    for by in BATCHED {
        counted(&async |world, batches| {
            let mut writer = Protected::open(world, by).await;
            batches.take();
            let drafts = vec![
                writer.write(WRITES, 0),
                writer.write(WRITES, 1),
                Draft::empty(Command::LOGOFF),
                writer.write(WRITES, 2),
                writer.write(WRITES, 3),
            ];
            let frames = writer.frames(drafts);
            writer.send_all(&frames).await;
            let statuses = writer.statuses(5).await;
            match by {
                By::Sign(_) => {
                    assert_eq!(statuses[..3], [Status::SUCCESS; 3]);
                    assert_eq!(statuses[3..], [Status::USER_SESSION_DELETED; 2]);
                }
                // After the LOGOFF there is no key for later replies, so the server disconnects,
                // maybe before the three earlier replies have arrived.
                By::Seal(_) => {
                    assert!(statuses.len() <= 3, "{statuses:?}");
                    assert!(statuses.iter().all(|status| *status == Status::SUCCESS));
                    writer.peer.expect_disconnect().await;
                }
            }
            assert_eq!(batches.take() >= 5, by.gains(), "{by:?}");
            let content = world.content("data");
            for at in 0..4 {
                assert_eq!(WRITES.is_in(&content, at), at < 2, "{by:?}, {at}");
            }
        });
    }
}

/// Requests of two sessions of one connection, in turn and in rows: each is checked with the key of
/// its session.
#[test]
fn each_session_has_its_own_key() {
    for by in BATCHED {
        counted(&async |world, batches| {
            let mut writer = Protected::open(world, by).await;
            let bob = writer.peer.log_on("bob").await;
            let bob = writer.peer.mount(&bob, "data").await;
            let file = writer.peer.open_file(&bob, &Want::file("other")).await;
            for order in [[0, 1, 0, 1, 0, 1, 0, 1], [0, 0, 0, 1, 1, 1, 1, 0]] {
                batches.take();
                let mut frames = Vec::new();
                for (at, who) in order.into_iter().enumerate() {
                    let (mount, file) =
                        if who == 0 { (&writer.mount, writer.file) } else { (&bob, file) };
                    let data = vec![at as u8 + 1; LEN];
                    let mut draft = mount.put(write_draft(file, (at * LEN) as u64, &data));
                    writer.peer.stamp(&mut draft);
                    frames.push(pack(&[draft], by.via(mount)));
                }
                writer.send_all(&frames).await;
                assert_eq!(writer.statuses(8).await, [Status::SUCCESS; 8], "{by:?}");
                let checked = batches.take();
                let is_row = order[1] == 0;
                assert_eq!(checked, if is_row && by.gains() { 7 } else { 0 }, "{by:?}");
                for (at, who) in order.into_iter().enumerate() {
                    let name = if who == 0 { "data" } else { "other" };
                    assert!(WRITES.is_in(&world.content(name), at), "{by:?}: {at} in {name}");
                }
            }
        });
    }
}

/// A sequence number that was used already ends the connection at its turn, although its frame has
/// the right signature: MS-SMB2 3.3.5.2.3.
#[test]
fn a_frame_that_comes_twice_ends_the_connection() {
    for by in BATCHED {
        counted(&async |world, batches| {
            let mut writer = Protected::open(world, by).await;
            batches.take();
            let writes = Writes { count: 5, ..WRITES };
            let mut frames = writer.frames_of(writes);
            frames[2] = frames[1].clone();
            writer.send_all(&frames).await;
            writer.expect_end_at(world, writes, 2).await;
            assert_eq!(batches.take() > 0, by.gains(), "{by:?}");
        });
    }
}

/// A malformed frame in the middle of a row is judged like one that comes alone.
#[test]
fn a_malformed_frame_does_not_spoil_those_before_it() {
    for by in BATCHED {
        counted(&async |world, batches| {
            let mut writer = Protected::open(world, by).await;
            batches.take();
            let mut frames = writer.frames_of(WRITES);
            malform(&mut frames[3], by);
            writer.send_all(&frames).await;
            writer.expect_end_at(world, WRITES, 3).await;
            assert_eq!(batches.take() > 0, by.gains(), "{by:?}");
        });
    }
}

/// Requests that come together over a connection that has negotiated compression: sealed ones are
/// decrypted together before that is looked at. Some of them are compressed.
#[test]
fn sealed_requests_that_may_be_compressed_are_opened_together() {
    for by in BATCHED {
        counted_compressing(&async |world, batches| {
            let offer = Offer { compression: vec![2, 4], chained: true, ..by.offer() };
            for compressed in [&[][..], &[0], &[3, 4], &[COUNT - 1]] {
                let mut writer = Protected::open_with(world, by, &offer).await;
                batches.take();
                let frame = |at| {
                    let draft = writer.write(WRITES, at);
                    if !compressed.contains(&at) {
                        return writer.frame(draft);
                    }
                    let mut draft = writer.mount.put(draft);
                    writer.peer.stamp(&mut draft);
                    let message = squeezed(&draft.bytes(), 112, Codec::Lz77, true);
                    seal(&message, &writer.mount.logon, writer.mount.logon.id)
                };
                let frames: Vec<_> = (0..COUNT).map(frame).collect();
                let lens: Vec<_> = frames.iter().map(Vec::len).collect();
                writer.send_all(&frames).await;
                let statuses = writer.statuses(COUNT).await;
                assert_eq!(statuses, [Status::SUCCESS; COUNT], "{by:?}, {compressed:?}, {lens:?}");
                let content = world.content("data");
                assert!((0..COUNT).all(|at| WRITES.is_in(&content, at)), "{by:?}");
                let checked = batches.take();
                if compressed.is_empty() {
                    let expected = if by.gains() { COUNT - 2..=COUNT } else { 0..=0 };
                    assert!(expected.contains(&checked), "{by:?}: {checked} checked together");
                }
                writer.peer.expect_alive_in(&writer.mount).await;
                writer.peer.close(&writer.mount, writer.file).await;
                std::fs::remove_file(world.path("data")).unwrap();
            }
        });
    }
}

/// MS-SMB2 3.3.5.2.1.1: as without compression, those before a frame that does not unseal are answered,
/// and those behind it never happened.
#[test]
fn a_wrong_tag_among_requests_that_may_be_compressed_ends_the_connection() {
    let by = By::Seal(Cipher::Aes128Ccm);
    counted_compressing(&async |world, batches| {
        let offer = Offer { compression: vec![2], ..by.offer() };
        for wrong in [0, 4, COUNT - 1] {
            let mut writer = Protected::open_with(world, by, &offer).await;
            batches.take();
            let mut frames = writer.frames_of(WRITES);
            frames[wrong][300] ^= 1;
            writer.send_all(&frames).await;
            writer.expect_end_at(world, WRITES, wrong).await;
            assert_eq!(batches.take() > 0, by.gains());
        }
    });
}
