//! Copies a file within a share, on the server where it can do that.
//!
//! ```text
//! FREVO_PASSWORD=... copy_file smb://USER@HOST[:PORT]/SHARE/PATH NEW_PATH
//! ```
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

mod place;

use frevo_client::{OpenOptions, Result, Share};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, to] = &*arguments else {
        return Err("copy_file smb://USER@HOST[:PORT]/SHARE/PATH NEW_PATH".into());
    };
    let (share, from) = place::reach(url).await?;
    let bytes = copy_file(&share, &from, to).await?;
    println!("{bytes} bytes are now in {}", share.url(to));
    Ok(())
}

/// Copies `from` to `to`, which must not exist. Returns how many bytes there were.
pub(crate) async fn copy_file(share: &Share, from: &str, to: &str) -> Result<u64> {
    let source = share.open(from).await?;
    let target = OpenOptions::new().write(true).create_new(true).open(share, to).await?;
    let mut len = source.metadata_at_open().len();
    // As a reflink, by the storage or by the server: nothing passes through here.
    if source.copy_range_to(&target, 0, 0, len).await?.is_none() {
        // Else with many reads under way; the pieces come in order.
        let target = &target;
        len = source
            .fetch_all(|at, piece| async move { Ok(target.write_at(at, &piece).await?) })
            .await?;
        target.set_len(len).await?;
    }
    // A file that is dropped is closed too; this says whether that went well.
    target.close().await?;
    Ok(len)
}
