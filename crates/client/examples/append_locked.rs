//! Adds numbered lines to a file that others add to as well, each line exactly
//! once, whatever becomes of the connection and of the server meanwhile.
//!
//! ```text
//! FREVO_PASSWORD=... append_locked HOST[:PORT] SHARE PATH USER WRITER COUNT
//! ```
//!
//! An error that leaves open whether a line was written is not guessed about:
//! the file is opened and locked anew, and looked at. At the end it tells how
//! often that was necessary; on a share with persistent handles it is never.
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use std::io;
use std::time::Duration;

use frevo_client::{Cause, Client, Credentials, File, OpenOptions, Result, ServerName, Share};

/// Every line has as many bytes.
const LINE: usize = 32;
/// Both ends of a file that is never so long.
const WHOLE: (u64, u64) = (0, 1 << 40);

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, share, path, user, writer, count] = &*arguments else {
        return Err("append_locked HOST[:PORT] SHARE PATH USER WRITER COUNT".into());
    };
    let server = match host.split_once(':') {
        Some((host, port)) => ServerName::new(host).at_port(port.parse()?),
        None => ServerName::new(host),
    };
    let password = std::env::var("FREVO_PASSWORD")?;
    let session = Client::default().log_on(server, Credentials::password(user, &password)).await?;
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
                    // What may still be locked is unlocked with the handle.
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
    println!("{count} lines, taken up anew {again} times");
    Ok(())
}

async fn open(share: &Share, path: &str) -> Result<File> {
    OpenOptions::new().read(true).write(true).create(true).open(share, path).await
}

/// Whether the handle, or what was asked of it, may be lost.
fn is_lost(error: &frevo_client::Error) -> bool {
    let is_closed = error.kind() == io::ErrorKind::StaleNetworkFileHandle;
    is_closed || matches!(error.cause(), Cause::Unknown | Cause::HandleLost)
}

/// Puts `line` at the end, under a lock of the whole file; nothing, when `look`
/// finds that it is there.
async fn append(file: &File, line: &[u8], look: bool) -> Result<()> {
    file.lock(WHOLE.0, WHOLE.1, true, true).await?;
    let len = file.metadata().await?.len();
    if !look || !is_there(file, len, line).await? {
        file.write_at(len, line).await?;
        file.sync().await?;
    }
    file.unlock(WHOLE.0, WHOLE.1).await
}

async fn is_there(file: &File, len: u64, line: &[u8]) -> Result<bool> {
    let mut content = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    let count = file.read_at(0, &mut content).await?;
    content.truncate(count);
    Ok(content.chunks(LINE).any(|there| there == line))
}
