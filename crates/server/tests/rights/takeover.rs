//! Row A6: a session that is taken over while its file system keeps a request waiting.
//! (`races/takeover.rs` has what runs into each other by chance.)

use std::sync::Arc;
use std::time::Duration;

use frevo_server::internal::limits::TAKE_OVER_PATIENCE;
use frevo_server::share::Share;
use frevo_store::Vfs;
use tokio::time::{Instant, timeout};

use crate::client::world::{Users, in_own_world, serving};
use crate::client::{Offer, Setup, Want, World, settings};
use crate::impersonation::TwoUsers;
use crate::probe::Probe;

#[test]
fn a6_what_is_under_way_is_waited_for_but_not_for_ever() {
    let probe = Arc::new(Probe::new());
    let vfs: Arc<dyn Vfs> = Arc::clone(&probe) as _;
    let data = Share::disk("data", vfs).off_core();
    let shares = [data];
    let server = serving(settings(), shares, Arc::new(Users), Arc::new(TwoUsers));
    let world = World::of(server, tempfile::tempdir().unwrap());
    in_own_world(false, &world, async |world| {
        for answers in [true, false] {
            let (mut old, mount) = world.session("ann", &Offer::default()).await;
            probe.seen.shut(true);
            old.send(vec![mount.put(Want::file("held").draft())], mount.via()).await;
            old.interim().await;
            let mut new = world.connect();
            new.negotiate(&Offer::default()).await;
            let began = Instant::now();
            let setup = Setup { previous: mount.logon.id, ..Setup::of("ann") };
            let mut logon = std::pin::pin!(new.try_log_on(setup));
            let early = timeout(Duration::from_millis(500), logon.as_mut()).await;
            assert!(early.is_err(), "answered while the old session is at work");
            // The old session is ending, so it takes no new request, although one of its requests
            // still hangs.
            assert!(world.server.session(mount.logon.id).is_none());
            if answers {
                probe.seen.shut(false);
            }
            timeout(TAKE_OVER_PATIENCE * 2, logon).await.expect("answered").unwrap();
            assert_eq!(began.elapsed() < TAKE_OVER_PATIENCE, answers, "{:?}", began.elapsed());
            probe.seen.shut(false);
        }
    });
}
