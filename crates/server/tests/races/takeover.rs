//! A6: a session is taken over while it is at work on another core.

use frevo_wire::dtyp::Guid;

use super::cores::{Cores, runs};
use crate::client::files::{read_draft, write_draft};
use crate::client::*;

const GUID: Guid = Guid([0x5A; 16]);

/// Operations of the old session end before the new session begins: no old write comes after
/// the next request of the client.
#[test]
fn a6_taking_over_is_answered_when_nothing_is_under_way_any_more() {
    in_world(async |world| {
        let cores = Cores::start(&world.embedded, 2);
        for run in 0..runs(60) {
            let (mut old, mount) = cores.session(run, GUID).await;
            let file = old.open_file(&mount, &Want::file("f")).await;
            let mut new = cores.connect(run + 1, GUID);
            new.negotiate(&Offer::default()).await;
            let mut ids = Vec::new();
            for i in 0..16u8 {
                let write = write_draft(file, 0, &vec![i ^ (run as u8); 64 << 10]);
                ids.extend(old.send(vec![mount.put(write)], mount.via()).await);
            }
            let setup = Setup { previous: mount.logon.id, ..Setup::of("ann") };
            let logon = new.try_log_on(setup).await.unwrap();
            let then = world.content("f");
            for reply in old.collect(&ids).await {
                let status = reply.status();
                let is_over = matches!(status, Status::USER_SESSION_DELETED | Status::FILE_CLOSED);
                assert!(status == Status::SUCCESS || is_over, "{status:?}");
            }
            let read = mount.put(read_draft(file, 0, 1));
            old.ask(read, mount.via()).await.expect(Status::USER_SESSION_DELETED);
            assert_eq!(world.content("f"), then, "written to after the answer");
            let there = new.mount(&logon, "data").await;
            let alone = Want::existing("f").sharing(Default::default());
            new.open_file(&there, &alone).await;
        }
        cores.stop();
    });
}
