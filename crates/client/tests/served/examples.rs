//! The example programs do what they say, against a server of this process.
#![allow(clippy::disallowed_methods, reason = "tests")]
#![allow(dead_code, clippy::duplicate_mod, reason = "each is a program with a main of its own")]

#[path = "../../examples/copy_file.rs"]
mod copy_file;
#[path = "../../examples/walk_tree.rs"]
mod walk_tree;
#[path = "../../examples/watch_folder.rs"]
mod watch_folder;
use crate::world;

use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::time::Duration;

use frevo_client::Change;
use world::in_world;

#[test]
fn a_file_is_copied_and_no_other_is_lost_to_it() {
    in_world(async |world| {
        let share = world.share().await;
        let data: Vec<u8> = (0..3_000_001_u32).map(|at| (at % 251) as u8).collect();
        fs::write(world.path("a"), &data).unwrap();
        assert_eq!(copy_file::copy_file(&share, "a", "b").await.unwrap(), 3_000_001);
        assert!(fs::read(world.path("b")).unwrap() == data);
        // The target exists already (`a` is the source itself), so the copy is refused and the file
        // unchanged.
        for target in ["a", "b"] {
            let refused = copy_file::copy_file(&share, "a", target).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
        }
        assert!(fs::read(world.path("a")).unwrap() == data);
        fs::write(world.path("empty"), b"").unwrap();
        assert_eq!(copy_file::copy_file(&share, "empty", "none").await.unwrap(), 0);
        assert_eq!(fs::metadata(world.path("none")).unwrap().len(), 0);
    });
}

#[test]
fn a_tree_is_walked() {
    in_world(async |world| {
        let share = world.share().await;
        fs::create_dir_all(world.path("top/one/two")).unwrap();
        fs::create_dir(world.path("top/empty")).unwrap();
        for (path, data) in [("top/a", "1"), ("top/one/b", "22"), ("top/one/two/c", "333")] {
            fs::write(world.path(path), data).unwrap();
        }
        fs::write(world.path("beside"), b"4").unwrap();
        let walk = async |top| {
            let mut seen = Vec::new();
            let note = |path: &str, metadata: &frevo_client::Metadata| {
                seen.push((path.to_owned(), metadata.len()));
            };
            walk_tree::walk(&share, top, note).await.unwrap();
            seen.sort();
            seen
        };
        let pair = |path: &str, len| (path.to_owned(), len);
        let below = [pair("top/a", 1), pair("top/one/b", 2), pair("top/one/two/c", 3)];
        assert_eq!(walk("top/").await, below);
        assert_eq!(walk("").await.len(), 4);
    });
}

#[test]
fn a_folder_is_watched() {
    in_world(async |world| {
        let share = world.share().await;
        fs::create_dir_all(world.path("d/below")).unwrap();
        let mut lines = Vec::new();
        let told = |change: Change| {
            lines.push(watch_folder::line(&change));
            match change {
                Change::Removed(name) if name == "below/y" => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        };
        let watched =
            tokio::time::timeout(Duration::from_secs(20), watch_folder::watch(&share, "d", told));
        let (watched, ()) = tokio::join!(watched, async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            share.write("d/x", b"1").await.unwrap();
            share.rename_if_not_exists("d/x", "d/below/y").await.unwrap();
            share.remove_file("d/below/y").await.unwrap();
        });
        watched.expect("told in time").unwrap();
        assert_eq!(lines.first().map(String::as_str), Some("+ \"x\""));
        assert_eq!(lines.last().map(String::as_str), Some("- \"below/y\""));
    });
}
