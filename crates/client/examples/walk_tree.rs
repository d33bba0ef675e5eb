//! Lists all files below a directory, with their sizes.
//!
//! ```text
//! FREVO_PASSWORD=... walk_tree smb://USER@HOST[:PORT]/SHARE[/PATH]
//! ```
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

mod place;

use frevo_client::{Metadata, Result, Share};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url] = &*arguments else {
        return Err("walk_tree smb://USER@HOST[:PORT]/SHARE[/PATH]".into());
    };
    let (share, top) = place::connect(url).await?;
    let mut total = 0;
    walk(&share, &top, |path, metadata| {
        total += metadata.len();
        // A file name may contain control characters that terminals obey, so it is escaped.
        println!("{:12} {}", metadata.len(), path.escape_debug());
    })
    .await?;
    println!("{total:12} bytes in all");
    Ok(())
}

/// Shows each file below `top` to `seen`, with its path in the share.
pub(crate) async fn walk(
    share: &Share,
    top: &str,
    mut seen: impl FnMut(&str, &Metadata),
) -> Result<()> {
    let mut directories = vec![top.trim_end_matches('/').to_owned()];
    while let Some(directory) = directories.pop() {
        // The directory is read entry by entry, because it may be too large to keep as a whole.
        let mut entries = share.read_dir(&directory).await?;
        while let Some(entry) = entries.next_entry().await? {
            let slash = if directory.is_empty() { "" } else { "/" };
            let path = format!("{directory}{slash}{}", entry.file_name());
            // A link to a directory does not count as a directory, so the walk cannot go in
            // circles.
            if entry.metadata().is_dir() {
                directories.push(path);
            } else {
                seen(&path, entry.metadata());
            }
        }
    }
    Ok(())
}
