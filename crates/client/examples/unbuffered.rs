//! Writes or reads a large file from its beginning to its end, and asks the server to keep the data
//! in its cache or not. `dev/bench/unbuffered` compares the two.
//!
//! ```text
//! FREVO_PASSWORD=... unbuffered HOST[:PORT] SHARE PATH USER kept|unbuffered write|read MIB
//! ```
//!
//! Prints the seconds that the transfer took.
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use std::time::Instant;

use frevo_client::{Client, Credentials, OpenOptions, ServerName};

/// Bytes of one call, which the client sends as several requests.
const PIECE: usize = 16 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, share, path, user, mode, operation, mib] = &*arguments else {
        return Err("unbuffered HOST[:PORT] SHARE PATH USER kept|unbuffered write|read MIB".into());
    };
    let server: ServerName = host.parse()?;
    let password = std::env::var("FREVO_PASSWORD")?;
    let session = Client::default().connect(server, Credentials::new(user, &password)).await?;
    let share = session.share(share).await?;
    let writes = operation == "write";
    let options = OpenOptions::new().read(!writes).write(writes).create(writes);
    let file = options.unbuffered(mode == "unbuffered").open(&share, path).await?;
    let bytes = mib.parse::<u64>()? << 20;
    let mut piece = vec![0; PIECE];
    let began = Instant::now();
    let mut offset = 0;
    while offset < bytes {
        if writes {
            // Each piece begins with its offset, so that the check below notices a piece read from
            // a wrong place.
            piece[..8].copy_from_slice(&offset.to_le_bytes());
            file.write_all_at(&piece, offset).await?;
        } else {
            file.read_exact_at(&mut piece, offset).await?;
            if piece[..8] != offset.to_le_bytes() {
                return Err(format!("other data at {offset}").into());
            }
        }
        offset += PIECE as u64;
    }
    if writes {
        file.sync_all().await?;
    }
    println!("{:.3}", began.elapsed().as_secs_f64());
    file.close().await?;
    session.log_off().await;
    Ok(())
}
