//! A reload ends the sessions and tree connects that the new configuration does not allow.

use std::sync::Arc;

use frevo_auth::smbpasswd::Entry;
use frevo_auth::{AccountFile, NtHash};
use frevo_server::access_rules::{Names, Rules};
use frevo_server::internal::limits::LOGON_DELAY;
use frevo_server::internal::state::Shares;

use crate::client::logon::Exchange;
use crate::client::world::{in_frozen_world, in_world, password};
use crate::client::{Offer, Setup, Status, Via, World, settings};
use crate::lists::{STAFF, accounts, arrive, names, share, try_create};

const NEAR: &str = "127.0.0.1";

/// Gives the running server these accounts, and leaves its shares.
fn with_accounts(world: &World, accounts: AccountFile) -> [usize; 2] {
    let settings = (*world.server.settings()).clone();
    let shares = Shares::clone(&world.server.shares());
    let reviewed = world.server.reload(settings, &shares, Arc::new(accounts));
    [reviewed.sessions, reviewed.tree_connects]
}

/// Rules that take something away end the tree connects of those who have it, with their files; all
/// others go on.
#[test]
fn a_use_that_the_rules_refuse_ends() {
    let allow = |listed: &[&str]| Rules { allow: names(listed), ..Rules::default() };
    let deny = |listed: &[&str]| Rules { deny: names(listed), ..Rules::default() };
    let readers = |listed: &[&str]| Rules { read_list: names(listed), ..Rules::default() };
    let without_staff: &[(&str, &[&str])] = &[("ann", &[]), ("bob", &[])];
    let far = Rules { hosts_allow: vec!["192.0.2.0/24".parse().unwrap()], ..Rules::default() };
    let listed = |entry: &str| {
        let entries = vec![entry.parse().unwrap()];
        let list = frevo_server::share_access::AccessList::new(entries);
        Rules { access_list: Some(Arc::new(list)), ..Rules::default() }
    };
    for (what, before, read_only, after, groups, goes_on) in [
        ("allow", Rules::default(), false, allow(&["bob"]), STAFF, false),
        ("deny", Rules::default(), false, deny(&["ann"]), STAFF, false),
        ("groups", allow(&["@staff"]), false, allow(&["@staff"]), without_staff, false),
        ("read_only", Rules::default(), true, Rules::default(), STAFF, false),
        ("read_list", Rules::default(), false, readers(&["@staff"]), STAFF, false),
        ("hosts_allow", Rules::default(), false, far, STAFF, false),
        ("access_list", Rules::default(), false, listed("allow:S-1-1-0:read"), STAFF, false),
        ("nothing", allow(&["@staff"]), false, allow(&["@staff"]), STAFF, true),
        ("another user", allow(&["ann", "bob"]), false, allow(&["ann"]), STAFF, true),
        ("more", readers(&["ann"]), false, Rules::default(), STAFF, true),
    ] {
        in_world(async |world| {
            let before_reads = !before.read_list.is_empty();
            share(world, false, before.clone(), STAFF);
            let (mut ann, logon) = arrive(world, "ann", NEAR.parse().unwrap()).await;
            let mount = ann.mount(&logon, "data").await;
            let first = try_create(&mut ann, &mount, "first").await;
            assert_eq!(first == Status::SUCCESS, !before_reads, "{what}: {first:?}");
            share(world, read_only, after.clone(), groups);
            let later = try_create(&mut ann, &mount, "later").await;
            let expected = match (goes_on, before_reads) {
                (true, false) => Status::SUCCESS,
                (true, true) => first,
                (false, _) => Status::NETWORK_NAME_DELETED,
            };
            assert_eq!(later, expected, "{what}");
            // The session itself has not ended. It may connect to the share again, if the new rules
            // allow it.
            let again = ann.try_mount(&logon, "data").await;
            let reads = matches!(what, "read_only" | "read_list" | "access_list");
            assert_eq!(again.is_ok(), reads || goes_on, "{what}");
        });
    }
}

/// An account that lost its password here, was removed, disabled, or has another password, loses its
/// sessions; all other sessions stay.
#[test]
fn a_session_of_an_account_that_may_not_log_on_ends() {
    let with = |change: &dyn Fn(&mut AccountFile)| {
        let mut file = (*accounts(STAFF)).clone();
        change(&mut file);
        file
    };
    let without_password = |file: &mut AccountFile| {
        // If the configuration defines a user, the account file has an entry without a password,
        // which only gives the SID.
        file.remove("ann");
        let mut entry = Entry::new("ann", u32::MAX, NtHash::from_password("x"), 0);
        entry.nt_hash = None;
        file.add(entry).unwrap();
    };
    let set = |file: &mut AccountFile, text: &str| {
        assert!(file.set_password("ann", NtHash::from_password(text), None, 1));
    };
    for (what, file, ends) in [
        ("removed", with(&|file| _ = file.remove("ann")), true),
        ("disabled", with(&|file| _ = file.set_enabled("ann", false)), true),
        ("no password", with(&without_password), true),
        ("another password", with(&|file| set(file, "another")), true),
        ("the same password", with(&|file| set(file, &password("ann"))), false),
        ("another account", with(&|file| _ = file.remove("bob")), false),
    ] {
        in_world(async |world| {
            share(world, false, Rules { allow: Names::default(), ..Rules::default() }, STAFF);
            let (mut ann, logon) = arrive(world, "ann", NEAR.parse().unwrap()).await;
            let mount = ann.mount(&logon, "data").await;
            assert_eq!(try_create(&mut ann, &mount, "first").await, Status::SUCCESS);
            let ended = with_accounts(world, file.clone());
            assert_eq!(ended, [usize::from(ends), 0], "{what}");
            assert_eq!(world.server.session(logon.id).is_none(), ends, "{what}");
            let later = try_create(&mut ann, &mount, "later").await;
            assert_eq!(later == Status::SUCCESS, !ends, "{what}: {later:?}");
        });
    }
}

/// A logon waits for the throttle. What its account loses meanwhile it has lost.
#[test]
fn a_logon_that_waits_is_of_the_present_account() {
    let with = |change: &dyn Fn(&mut AccountFile)| {
        let mut file = (*accounts(STAFF)).clone();
        change(&mut file);
        file
    };
    let other = NtHash::from_password("another");
    for (what, file, expected) in [
        ("removed", with(&|file| _ = file.remove("ann")), Status::LOGON_FAILURE),
        ("disabled", with(&|file| _ = file.set_enabled("ann", false)), Status::LOGON_FAILURE),
        (
            "another password",
            with(&|file| _ = file.set_password("ann", other.clone(), None, 1)),
            Status::LOGON_FAILURE,
        ),
        ("another account", with(&|file| _ = file.remove("bob")), Status::SUCCESS),
    ] {
        in_frozen_world(settings(), async |world| {
            share(world, false, Rules::default(), STAFF);
            // After the wrong password, the answer to the next logon is delayed, so the logon is
            // pending during the change.
            let guess = Setup { password: "wrong".into(), ..Setup::of("ann") };
            let mut peers = Vec::new();
            for setup in [guess, Setup::of("ann")] {
                let mut peer = world.connect();
                peer.negotiate(&Offer::default()).await;
                let mut exchange = Exchange::new(&peer, setup);
                exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
                let draft = exchange.setup.draft(&exchange.token, exchange.session_id);
                peer.send(vec![draft], Via::Plain).await;
                tokio::time::sleep(LOGON_DELAY / 8).await;
                peers.push(peer);
            }
            with_accounts(world, file.clone());
            let mut ann = peers.pop().expect("ann");
            ann.reply().await.expect(expected);
            tokio::time::sleep(LOGON_DELAY * 4).await;
            let left =
                world.server.sessions().iter().any(|session| {
                    session.identity().is_some_and(|identity| identity.user == "ann")
                });
            assert_eq!(left, expected == Status::SUCCESS, "{what}");
        });
    }
}
