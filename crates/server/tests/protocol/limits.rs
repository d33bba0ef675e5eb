//! Limits of one request at n - 1, n and n + 1.

use frevo_server::internal::limits::{MAX_IO, MAX_IO_SINGLE_CREDIT};

use crate::client::files::{read_draft, write_draft};
use crate::client::*;

/// The statuses of READs and WRITEs of some lengths, which pay with enough credits.
async fn payloads(world: &World, offer: &Offer, limit: u32) {
    let (mut peer, mount) = world.session("ann", offer).await;
    let file = peer.open_file(&mount, &Want::file("f")).await;
    peer.write(&mount, file, 0, b"x").await;
    for length in [limit - 1, limit, limit + 1] {
        let expected = if length > limit { Status::INVALID_PARAMETER } else { Status::SUCCESS };
        peer.on(&mount, read_draft(file, 0, length)).await.expect(expected);
        let data = vec![7; length as usize];
        peer.on(&mount, write_draft(file, 0, &data)).await.expect(expected);
    }
    drop(peer);
    assert_eq!(world.content("f").len(), limit as usize, "refused writes change nothing");
}

#[test]
fn payloads_are_as_long_as_negotiated() {
    in_world(async |world| {
        payloads(world, &Offer::only(Dialect::SMB_2_0_2), MAX_IO_SINGLE_CREDIT).await;
        payloads(world, &Offer::default(), MAX_IO).await;
    });
}

/// MS-SMB2 3.3.5.2.5: a credit pays for 64 KiB, whatever the request asks for or carries.
#[test]
fn a_credit_pays_for_so_many_bytes() {
    const EACH: u32 = frevo_proto::limits::BYTES_PER_CREDIT;
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.write(&mount, file, 0, b"x").await;
        for charge in 1..=3_u16 {
            let paid = EACH * u32::from(charge);
            for length in [paid - 1, paid, paid + 1] {
                let is_paid = length <= paid;
                let expected = if is_paid { Status::SUCCESS } else { Status::INVALID_PARAMETER };
                let read = read_draft(file, 0, length).charge(charge);
                peer.on(&mount, read).await.expect(expected);
                let write = write_draft(file, 0, &vec![7; length as usize]).charge(charge);
                peer.on(&mount, write).await.expect(expected);
            }
        }
    });
}
