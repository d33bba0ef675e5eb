//! The end of a session is recorded with its reason.

use frevo_server::internal::limits::{IDLE_LOOK, IDLE_SESSION_MINUTES};
use frevo_server::internal::state::watch_idle_sessions;

use super::*;

/// Nobody has an account any more.
#[derive(Debug)]
struct Nobody;

impl Accounts for Nobody {
    fn account(&self, _: &str, _: &str) -> Option<Account> {
        None
    }

    fn membership(&self, _: &str) -> Option<Membership> {
        None
    }
}

/// Waits until `count` sessions are left.
async fn until_left(world: &World, count: usize) {
    while world.server.sessions().len() != count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn each_end_of_a_session_has_its_reason() {
    let lines = scene(Operations::EMPTY, async |world| {
        let offer = Offer::default();
        let (mut leaving, left) = world.session("ann", &offer).await;
        leaving.on(&left, Draft::empty(Command::LOGOFF)).await.ok();

        let (gone, _) = world.session("ann", &offer).await;
        drop(gone);
        until_left(world, 0).await;

        let (_kicked, _) = world.session("bob", &offer).await;
        let bob = frevo_server::Kick::User(String::from("bob"));
        world.embedded.kick(&bob, "a test").await;

        let (_replaced, old) = world.session("ann", &offer).await;
        let mut new = world.connect();
        new.negotiate(&offer).await;
        let again = Setup { previous: old.logon.id, ..Setup::of("ann") };
        let new_logon = new.try_log_on(again).await.unwrap();

        let wrong = Setup { password: String::from(WRONG), ..Setup::again("ann", &new_logon) };
        new.log_on_again(wrong).await.expect(Status::LOGON_FAILURE);
        until_left(world, 0).await;

        let watch = tokio::task::spawn_local(watch_idle_sessions(Arc::clone(&world.server)));
        let (mut idle, _) = world.session("ann", &offer).await;
        let idle_for = Duration::from_secs(60 * u64::from(IDLE_SESSION_MINUTES));
        tokio::time::sleep(idle_for + IDLE_LOOK * 2).await;
        idle.expect_disconnect().await;
        watch.abort();

        let (_removed, _) = world.session("ann", &offer).await;
        let shares = world.server.shares().as_ref().clone();
        world.server.reload(settings(), &shares, Arc::new(Nobody));
        until_left(world, 0).await;
    });
    let ends = lines.iter().filter(|line| line["event"] == "logoff");
    let ends: Vec<_> = ends
        .map(|line| (line["user"].as_str().unwrap(), line["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(
        ends,
        [
            ("ann", "the client logged off"),
            ("ann", "its last connection has ended"),
            ("bob", "an administrator ended it"),
            ("ann", "the client logged on again in its place"),
            ("ann", "a logon in it failed"),
            ("ann", "it was idle for too long"),
            ("ann", "the account was removed or disabled, has ended or got another password"),
        ]
    );
}
