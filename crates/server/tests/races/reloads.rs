//! A tree connect beside a reload that refuses its user: whichever comes first, no use of the share is
//! left when both are done.

use std::sync::Arc;
use std::time::Duration;

use frevo_server::access_rules::Rules;
use frevo_server::internal::state::Shares;
use frevo_server::share::Share;
use frevo_wire::dtyp::Guid;

use super::cores::{Cores, runs};
use crate::client::*;

const GUID: Guid = Guid([0x5A; 16]);

/// The shares of the world, with `data` for these users alone.
fn shares_for(shares: &Shares, users: &[&str]) -> Shares {
    let data = shares.find("data").unwrap();
    Shares::new([Share::clone(data).rules(Rules::for_users(users))])
}

#[test]
fn a_tree_connect_beside_a_reload_ends_or_is_refused() {
    in_world(async |world| {
        let cores = Cores::start(&world.embedded, 2);
        let (both, bob) = {
            let shares = world.server.shares();
            (shares_for(&shares, &["ann", "bob"]), shares_for(&shares, &["bob"]))
        };
        let reload = |shares: Shares| {
            let settings = (*world.server.settings()).clone();
            let server = Arc::clone(&world.server);
            move || server.reload(settings, &shares, server.accounts())
        };
        let mut seen = [0; 2];
        for run in 0..runs(150) {
            reload(both.clone())();
            let (mut ann, mount) = cores.session(run, GUID).await;
            let refusing = std::thread::spawn(reload(bob.clone()));
            // In some runs the tree connect begins a little later, so that the reload happens at
            // different steps of the tree connect.
            tokio::time::sleep(Duration::from_micros(run as u64 % 10 * 20)).await;
            let connected = ann.try_mount(&mount.logon, "data").await;
            let reviewed = tokio::task::spawn_blocking(|| refusing.join().unwrap()).await.unwrap();
            assert!(reviewed.tree_connects > 0, "that of the mount ends at least");
            match connected {
                Ok(mount) => {
                    seen[0] += 1;
                    let gone = ann.create(&mount, &Want::file("f")).await.status();
                    assert_eq!(gone, Status::NETWORK_NAME_DELETED, "a use is left");
                }
                Err(reply) => {
                    seen[1] += 1;
                    assert_eq!(reply.status(), Status::BAD_NETWORK_NAME);
                }
            }
        }
        println!("connected first: {}, refused: {}", seen[0], seen[1]);
        cores.stop();
    });
}
