//! Trees without an end, and trees with links out of them.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;
use crate::world;

use std::os::unix::fs::symlink;

use dialed::one_thing;
use evil::{Act, Manners};
use frevo_client::limits::TREE_DEPTH;
use frevo_client::{Cause, Client, Credentials, Error, Options, ServerName, Share};
use world::in_world;

async fn share(client: &Client) -> Result<Share, Error> {
    let user = Credentials::new("ann", "secret");
    client.connect(ServerName::new("evil"), user).await?.share("data").await
}

/// A server where each directory contains a directory.
#[test]
fn a_directory_that_contains_itself_has_an_end() {
    let manners = || Manners { root: vec![("d".into(), true)], ..Manners::default() };
    let options = Options::default;
    let (walked, _) = one_thing(
        manners(),
        options(),
        |_| Act::Honest,
        async |client| {
            let mut walk = share(client).await?.walk("");
            let (mut found, mut errors) = (0, Vec::new());
            loop {
                match walk.next_entry().await {
                    Ok(Some(_)) => found += 1,
                    Ok(None) => return Ok((found, errors)),
                    Err(error) => errors.push(error),
                }
            }
        },
    );
    let (found, errors) = walked.unwrap();
    assert_eq!((found, errors.len()), (TREE_DEPTH, 1));
    assert!(matches!(errors[0].cause(), Cause::Limit(_)), "{}", errors[0]);
    let (removed, _) = one_thing(
        manners(),
        options(),
        |_| Act::Honest,
        async |client| share(client).await?.remove_dir_all("d").await,
    );
    let error = removed.unwrap_err();
    assert!(matches!(error.cause(), Cause::Limit(_)), "{error}");
}

#[test]
fn a_removed_link_keeps_its_target() {
    in_world(async |world| {
        let share = world.share().await;
        share.create_dir_all("kept/below").await.unwrap();
        share.write("kept/below/file", "x").await.unwrap();
        share.create_dir("tree").await.unwrap();
        symlink("kept", world.path("link")).unwrap();
        symlink("../kept", world.path("tree/inside")).unwrap();
        share.symlink_dir("..\\kept", "tree/made").await.unwrap();
        let kept = || assert_eq!(std::fs::read(world.path("kept/below/file")).unwrap(), b"x");
        for removed in ["link", "tree"] {
            share.remove_dir_all(removed).await.unwrap();
            kept();
            assert!(world.path(removed).symlink_metadata().is_err(), "{removed} is still there");
        }
    });
}
