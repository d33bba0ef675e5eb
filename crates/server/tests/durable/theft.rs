//! X5: who has guessed, or seen, what a durable Open is called does not get it.

use crate::asking::*;
use crate::client::*;
use frevo_server::internal::limits::BREAK_TIMEOUT;
use frevo_wire::create_context::CreateContext;

const RWH: u32 = 7;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    BatchV1,
    LeaseV1,
    BatchV2,
    LeaseV2,
    Resilient,
    Persistent,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::BatchV1,
        Self::LeaseV1,
        Self::BatchV2,
        Self::LeaseV2,
        Self::Resilient,
        Self::Persistent,
    ];

    fn is_v2(self) -> bool {
        matches!(self, Self::BatchV2 | Self::LeaseV2 | Self::Persistent)
    }

    fn has_lease(self) -> bool {
        matches!(self, Self::LeaseV1 | Self::LeaseV2 | Self::Persistent)
    }

    fn share(self) -> &'static str {
        if self == Self::Persistent { "lasting" } else { "data" }
    }

    /// A CREATE with these contexts and what the Open caches.
    fn want(self, want: Want, key: u8, contexts: &[CreateContext<'_>]) -> Want {
        match self {
            _ if self.has_lease() => leased(want, key, RWH, contexts),
            Self::Resilient => with(want, contexts),
            _ => batch(want, contexts),
        }
    }

    async fn open(self, peer: &mut Peer, mount: &Mount) -> FileId {
        let contexts = match self {
            Self::Resilient => vec![],
            _ if self.is_v2() => vec![dh2q(guid(3), self == Self::Persistent)],
            _ => vec![CreateContext::DurableRequest],
        };
        let want = Want::file("f").sharing(Default::default());
        let file = peer.open_file(mount, &self.want(want, 1, &contexts)).await;
        if self == Self::Resilient {
            let made = make_resilient(peer, mount, file, 60_000).await;
            assert_eq!(made, Status::SUCCESS);
        }
        peer.write(mount, file, 0, b"mine").await;
        file
    }

    /// The reconnect that is right, or one with another id, CreateGuid or LeaseKey.
    fn again(self, file: FileId, create: u8, key: u8) -> Want {
        let context = if self.is_v2() {
            dh2c(file, guid(create), self == Self::Persistent)
        } else {
            dhnc(file)
        };
        self.want(Want::existing("f"), key, &[context])
    }
}

fn store(world: &World) {
    use frevo_server::internal::state;
    let store = std::sync::Arc::new(frevo_store::state::MemoryState::default());
    state::restore(&world.server, store).unwrap();
}

#[test]
fn x5_a_durable_open_is_its_owners() {
    for kind in Kind::ALL {
        in_world(async |world| {
            store(world);
            let client = guid(0x31);
            let (mut ann, anns) = back(world, client, "ann", kind.share()).await;
            let file = kind.open(&mut ann, &anns).await;
            let right = kind.again(file, 3, 1);
            let none = Status::OBJECT_NAME_NOT_FOUND;

            // The session of the Open still exists, so no session can take the Open over, not even
            // one of its owner.
            let (mut bob, bobs) = back(world, client, "bob", kind.share()).await;
            bob.create(&bobs, &right).await.expect(none);
            let (mut twin, own) = back(world, client, "ann", kind.share()).await;
            let began = std::time::Instant::now();
            twin.create(&own, &right).await.expect(none);
            assert!(began.elapsed() < BREAK_TIMEOUT / 2);
            assert_eq!(ann.read(&anns, file, 0, 9).await, b"mine", "{kind:?}");

            drop(ann);
            lost(world, 1).await;
            // Another user is refused even with the right FileId and CreateGuid.
            bob.create(&bobs, &right).await.expect(Status::ACCESS_DENIED);
            // Even its owner is refused if the FileId is wrong.
            let wrong = [
                FileId { persistent: file.persistent ^ 1, ..file },
                FileId { persistent: file.persistent ^ 1 << 63, ..file },
                FileId { persistent: file.persistent.wrapping_add(1), ..file },
                FileId { persistent: file.volatile, volatile: file.persistent },
                FileId { persistent: 0, ..file },
            ];
            for id in wrong {
                // MS-SMB2 3.3.5.9.12: a persistent Open is also found by its CreateGuid alone. So
                // for this kind the CreateGuid is wrong, too.
                let create = if kind == Kind::Persistent { 4 } else { 3 };
                for (peer, mount) in [(&mut twin, &own), (&mut bob, &bobs)] {
                    peer.create(mount, &kind.again(id, create, 1)).await.expect(none);
                }
            }
            if kind.is_v2() {
                twin.create(&own, &kind.again(file, 4, 1)).await.expect(none);
            }
            if kind.has_lease() {
                twin.create(&own, &kind.again(file, 3, 2)).await.expect(none);
                // The Open has a lease, so a client with another ClientGuid is refused.
                let (mut far, there) = back(world, guid(0x66), "ann", kind.share()).await;
                far.create(&there, &right).await.expect(none);
            }
            if kind == Kind::Persistent {
                let plain = with(Want::existing("f"), &[dh2c(file, guid(3), false)]);
                twin.create(&own, &plain).await.expect(none);
            }
            // The owner uses another share with other rights, and is refused.
            let (mut other, elsewhere) = back(world, client, "ann", "readonly").await;
            let status = other.create(&elsewhere, &right).await.status();
            assert_eq!(status, none, "{kind:?}");

            // In spite of all failed attempts, the owner can reconnect to the Open, whose content
            // is the same.
            let again = twin.open_file(&own, &right).await;
            assert_eq!(again.persistent, file.persistent);
            assert_eq!(twin.read(&own, again, 0, 9).await, b"mine", "{kind:?}");
            bob.create(&bobs, &right).await.expect(none);
            twin.close(&own, again).await;
            bob.create(&bobs, &right).await.expect(none);
        });
    }
}

/// A FileId's persistent half is 64 random bits, all that the field has
/// (MS-SMB2 2.2.14.1); the volatile half counts, and is of no use to a thief.
#[test]
fn x5_ids_cannot_be_guessed_from_others() {
    in_world(async |world| {
        const COUNT: usize = 20_000;
        let ids: Vec<u64> = (0..COUNT).map(|_| world.server.new_file_id().persistent).collect();
        for bit in 0..64 {
            let is_set = |id: &&u64| **id >> bit & 1 == 1;
            let ones = ids.iter().filter(is_set).count();
            // The number of ones is almost never ten standard deviations (708) away from half, if
            // the bits are random.
            assert!(ones.abs_diff(COUNT / 2) < 708, "bit {bit}: {ones}");
            let changes = ids.windows(2).filter(|pair| (pair[0] ^ pair[1]) >> bit & 1 == 1);
            assert!(changes.count().abs_diff(COUNT / 2) < 708, "bit {bit} goes on");
        }
        let mut differences: Vec<u64> =
            ids.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        differences.sort_unstable();
        differences.dedup();
        assert_eq!(differences.len(), COUNT - 1);
    });
}
