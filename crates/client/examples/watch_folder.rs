//! Tells what changes in a directory and below, until it is interrupted.
//!
//! ```text
//! FREVO_PASSWORD=... watch_folder smb://USER@HOST[:PORT]/SHARE[/PATH]
//! ```
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

mod place;

use std::ops::ControlFlow;

use frevo_client::{Change, RecursiveMode, Result, Share};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url] = &*arguments else {
        return Err("watch_folder smb://USER@HOST[:PORT]/SHARE[/PATH]".into());
    };
    let (share, path) = place::connect(url).await?;
    watch(&share, &path, |change| {
        println!("{}", line(&change));
        ControlFlow::Continue(())
    })
    .await?;
    Ok(())
}

/// Gives each change in `path` and below to `told`, until that has enough.
pub(crate) async fn watch(
    share: &Share,
    path: &str,
    mut told: impl FnMut(Change) -> ControlFlow<()>,
) -> Result<()> {
    let mut watch = share.watch(path, RecursiveMode::Recursive).await?;
    loop {
        // The server stores the changes that happen between two calls, so the loop misses none.
        for change in watch.next_changes().await? {
            if told(change).is_break() {
                return Ok(());
            }
        }
    }
}

/// A change as a line of text. Debug escapes what a terminal would obey.
pub(crate) fn line(change: &Change) -> String {
    match change {
        Change::Added(name) => format!("+ {name:?}"),
        Change::Removed(name) => format!("- {name:?}"),
        Change::Modified(name) => format!("~ {name:?}"),
        Change::Renamed { from, to } => format!("> {from:?} is {to:?}"),
        _ => String::from("! more changes than the server kept: list the directory"),
    }
}
