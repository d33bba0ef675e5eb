//! Appends numbered lines to a file that several clients append to: each line exactly
//! once, also when the connection or the server is lost meanwhile.
//!
//! ```text
//! FREVO_PASSWORD=... append_locked HOST[:PORT] SHARE PATH USER WRITER COUNT
//! ```
//!
//! When an error leaves open if a line was written, the program opens and locks the file
//! again and looks for the line. At the end it prints how often that was necessary: never on
//! a share with persistent handles.
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use std::io;
use std::time::Duration;

use frevo_client::{
    Cause, Client, Credentials, File, LockKind, OpenOptions, Result, ServerName, Share,
};

/// Length of each line, bytes.
const LINE: usize = 32;
/// Offset and length of the locked range, longer than the file.
const WHOLE: (u64, u64) = (0, 1 << 40);

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, share, path, user, writer, count] = &*arguments else {
        return Err("append_locked HOST[:PORT] SHARE PATH USER WRITER COUNT".into());
    };
    let server: ServerName = host.parse()?;
    let password = std::env::var("FREVO_PASSWORD")?;
    let session = Client::default().connect(server, Credentials::new(user, &password)).await?;
    let share = session.share(share).await?;
    let mut again = 0;
    let mut file = open(&share, path).await?;
    for number in 0..count.parse::<u32>()? {
        let line = format!("{:<width$}\n", format!("{writer} {number}"), width = LINE - 1);
        let mut is_first = true;
        loop {
            match append(&file, line.as_bytes(), !is_first).await {
                Ok(()) => break,
                Err(error) if is_lost(&error) => {
                    again += 1;
                    is_first = false;
                    // Closing the handle releases its locks on the server before the file is opened
                    // again.
                    let _ = file.close().await;
                    file = open(&share, path).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    file.close().await?;
    session.log_off().await;
    println!("{count} lines, opened again {again} times");
    Ok(())
}

async fn open(share: &Share, path: &str) -> Result<File> {
    OpenOptions::new().read(true).write(true).create(true).open(share, path).await
}

/// Returns true if the handle, or the answer to a request about it, may be lost.
fn is_lost(error: &frevo_client::Error) -> bool {
    let is_closed = error.kind() == io::ErrorKind::StaleNetworkFileHandle;
    is_closed || matches!(error.cause(), Cause::Unknown | Cause::HandleLost)
}

/// Appends `line` under a lock on the whole file. If `look` is set, a line that the file
/// already contains is left out.
async fn append(file: &File, line: &[u8], look: bool) -> Result<()> {
    file.lock(WHOLE.0, WHOLE.1, LockKind::Exclusive).await?;
    let len = file.metadata().await?.len();
    if !look || !is_there(file, len, line).await? {
        file.write_all_at(line, len).await?;
        file.sync_all().await?;
    }
    file.unlock(WHOLE.0, WHOLE.1).await
}

async fn is_there(file: &File, len: u64, line: &[u8]) -> Result<bool> {
    let mut content = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    let count = file.read_at(&mut content, 0).await?;
    content.truncate(count);
    Ok(content.chunks(LINE).any(|there| there == line))
}
