//! A6: PreviousSessionId. Only the same user removes a session so, and only once it is
//! authenticated. MS-SMB2 3.3.5.5.3.

use crate::client::files::read_draft;
use crate::client::logon::Exchange;
use crate::client::*;

const CONTENT: &[u8] = b"precious";

/// Ann's session, with a file that nobody else may open.
struct Old {
    peer: Peer,
    mount: Mount,
    file: FileId,
}

impl Old {
    async fn new(world: &World) -> Self {
        world.file("precious", CONTENT);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let want = Want::existing("precious").sharing(Default::default());
        let file = peer.open_file(&mount, &want).await;
        Self { peer, mount, file }
    }

    fn id(&self) -> u64 {
        self.mount.logon.id
    }

    async fn assert_untouched(&mut self) {
        let content = self.peer.read(&self.mount, self.file, 0, 100).await;
        assert_eq!(content, CONTENT);
    }

    async fn assert_gone(&mut self, world: &World) {
        assert!(world.server.session(self.id()).is_none());
        let read = self.mount.put(read_draft(self.file, 0, 1));
        self.peer.ask(read, self.mount.via()).await.expect(Status::USER_SESSION_DELETED);
    }
}

async fn connected(world: &World) -> Peer {
    let mut peer = world.connect();
    peer.negotiate(&Offer::default()).await;
    peer
}

fn taking(user: &str, previous: u64) -> Setup<'_> {
    Setup { previous, ..Setup::of(user) }
}

#[test]
fn a6_another_user_takes_nothing_over() {
    in_world(async |world| {
        let mut old = Old::new(world).await;
        let mut peer = connected(world).await;
        // Bob names ann's session as the previous one. The logon succeeds, but does not end a
        // session of another user.
        let logon = peer.try_log_on(taking("bob", old.id())).await.unwrap();
        assert_ne!(logon.id, old.id());
        peer.mount(&logon, "bobs").await;
        old.assert_untouched().await;
        // Bob uses the ClientGuid of ann's client as well, which changes nothing.
        let mut peer = world.connect();
        peer.guid = old.peer.guid;
        peer.negotiate(&Offer::default()).await;
        peer.try_log_on(taking("bob", old.id())).await.unwrap();
        old.assert_untouched().await;
    });
}

#[test]
fn a6_nothing_is_taken_over_before_the_logon_succeeds() {
    in_world(async |world| {
        let mut old = Old::new(world).await;
        // The user name "ann" alone proves nothing, so neither the first message nor a failed logon
        // may end ann's old session.
        let mut peer = connected(world).await;
        let mut exchange = Exchange::new(&peer, taking("ann", old.id()));
        exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
        old.assert_untouched().await;
        drop(peer);
        old.assert_untouched().await;
        for (user, password, status) in [
            ("ann", "wrong", Status::LOGON_FAILURE),
            ("ann", "", Status::LOGON_FAILURE),
            ("carol", "carol's password", Status::ACCOUNT_DISABLED),
        ] {
            let mut peer = connected(world).await;
            let setup = Setup { password: password.into(), ..taking(user, old.id()) };
            let refused = peer.try_log_on(setup).await.err().expect("refused");
            refused.expect(status);
            old.assert_untouched().await;
        }
        for token in [&b""[..], b"NTLMSSP\0", &[0x60; 40]] {
            let mut peer = connected(world).await;
            let draft = taking("ann", old.id()).draft(token, 0);
            let reply = peer.ask(draft, Via::Plain).await;
            assert!(!matches!(reply.status(), Status::SUCCESS), "{reply:?}");
            old.assert_untouched().await;
        }
        // Ann logs on. The old session ends only with the last step.
        let mut peer = connected(world).await;
        let mut exchange = Exchange::new(&peer, taking("ann", old.id()));
        exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
        old.assert_untouched().await;
        exchange.round(&mut peer).await.ok();
        old.assert_gone(world).await;
    });
}

#[test]
fn a6_the_same_user_takes_over_however_he_spells_himself() {
    in_world(async |world| {
        let mut old = Old::new(world).await;
        let mut peer = connected(world).await;
        let logon = peer.try_log_on(taking("ANN", old.id())).await.unwrap();
        old.assert_gone(world).await;
        // The old session has closed the file, which it had open without sharing, so the new one
        // can open it at once.
        let mount = peer.mount(&logon, "data").await;
        let want = Want::existing("precious").sharing(Default::default());
        peer.open_file(&mount, &want).await;
        // Ann's session has expired, but a new logon of ann can still end it as its previous
        // session.
        world.server.session(logon.id).unwrap().expire();
        let mut next = connected(world).await;
        let last = next.try_log_on(taking("ann", logon.id)).await.unwrap();
        assert!(world.server.session(logon.id).is_none());
        // Two logons at the same time name the same old session. Both succeed, and the old session
        // ends.
        let (mut a, mut b) = (connected(world).await, connected(world).await);
        let (one, two) = tokio::join!(
            a.try_log_on(taking("ann", last.id)),
            b.try_log_on(taking("ann", last.id)),
        );
        assert!(one.is_ok() && two.is_ok());
        assert!(world.server.session(last.id).is_none());
    });
}

#[test]
fn a6_ids_of_nothing_are_no_news() {
    in_world(async |world| {
        let mut old = Old::new(world).await;
        let near = old.id();
        for previous in [1, 0x77, u64::MAX, near ^ 1, near.wrapping_add(1), near << 32] {
            let mut peer = connected(world).await;
            let logon = peer.try_log_on(taking("ann", previous)).await.unwrap();
            peer.mount(&logon, "data").await;
            old.assert_untouched().await;
        }
        // A logon that is not finished has no user, so it cannot be ended by PreviousSessionId.
        let mut unfinished = connected(world).await;
        let mut exchange = Exchange::new(&unfinished, Setup::of("ann"));
        exchange.round(&mut unfinished).await.expect(Status::MORE_PROCESSING_REQUIRED);
        let mut peer = connected(world).await;
        peer.try_log_on(taking("ann", exchange.session_id)).await.unwrap();
        exchange.round(&mut unfinished).await.ok();
        let logon = exchange.logon(&mut unfinished);
        unfinished.mount(&logon, "data").await;
        // Only a new logon may end a previous session, so a re-authentication or a binding that
        // names one ends nothing.
        let (mut other, mount) = world.session("ann", &Offer::default()).await;
        let setup = Setup { previous: old.id(), ..Setup::again("ann", &mount.logon) };
        other.log_on_again(setup).await.ok();
        old.assert_untouched().await;
        let own = Setup { previous: mount.logon.id, ..Setup::again("ann", &mount.logon) };
        other.log_on_again(own).await.ok();
        other.expect_alive_in(&mount).await;
        let mut channel = world.connect();
        channel.guid = other.guid;
        channel.negotiate(&Offer::default()).await;
        let binding = Setup { previous: old.id(), ..Setup::binding("ann", &mount.logon) };
        channel.try_log_on(binding).await.unwrap();
        old.assert_untouched().await;
    });
}
