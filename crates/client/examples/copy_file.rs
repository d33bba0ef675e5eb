//! Copies a file within a share, on the server if it can.
//!
//! ```text
//! FREVO_PASSWORD=... copy_file smb://USER@HOST[:PORT]/SHARE/PATH NEW_PATH
//! ```
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

mod place;

use std::io;

use frevo_client::{OpenOptions, Share};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, to] = &*arguments else {
        return Err("copy_file smb://USER@HOST[:PORT]/SHARE/PATH NEW_PATH".into());
    };
    let (share, from) = place::connect(url).await?;
    let bytes = copy_file(&share, &from, to).await?;
    println!("{bytes} bytes are now in {}", share.url(to));
    Ok(())
}

/// Copies `from` to `to`, which must not exist. Returns the length in bytes.
pub(crate) async fn copy_file(share: &Share, from: &str, to: &str) -> io::Result<u64> {
    let source = share.open(from).await?;
    let target = OpenOptions::new().write(true).create_new(true).open(share, to).await?;
    let mut len = source.metadata_at_open().len();
    // The server copies the data, as a reflink if it can; the data does not pass through this
    // machine.
    if source.copy_range_to(&target, 0, 0, len).await?.is_none() {
        // If the server cannot copy, the data passes through this machine, with many parallel reads
        // and writes.
        len = tokio::io::copy(&mut source.cursor(), &mut target.cursor()).await?;
    }
    // Dropping a file closes it, too, but only `close` reports an error of the CLOSE.
    target.close().await?;
    Ok(len)
}
