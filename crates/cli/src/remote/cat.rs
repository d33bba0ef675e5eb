//! `cat`: prints files.

use std::io::Write;

use super::bandwidth::Limit;
use super::connection_options::Connection;
use super::failures::Failures;
use super::location::Url;
use super::logon::failed;
use super::{transfer, wildcards};
use crate::exit::{Done, Failure};

/// Writes files to standard output, no more than `bwlimit` bytes a second.
pub(crate) async fn cat(connection: &Connection, urls: &[Url], bwlimit: Option<u64>) -> Done {
    let mut failures = Failures::default();
    let limit = bwlimit.map(Limit::new);
    for url in &wildcards::expand(connection, urls).await? {
        match cat_one(connection, url, limit.as_ref()).await {
            Ok(true) => {}
            // Whoever reads has had enough.
            Ok(false) => return Ok(()),
            Err(failure) => failures.note_done(Err(failure))?,
        }
    }
    failures.end("printed")
}

/// False when the reader of the output is gone.
async fn cat_one(
    connection: &Connection,
    url: &Url,
    limit: Option<&Limit>,
) -> Result<bool, Failure> {
    let (share, url) = &connection.reach(url).await?;
    let file = share.open(&url.path).await.map_err(failed)?;
    let sink = |_: u64, piece: frevo_net::buffer::Buf| {
        let written = std::io::stdout().lock().write_all(&piece);
        async move {
            written?;
            if let Some(limit) = limit {
                limit.take(piece.len() as u64).await;
            }
            Ok(())
        }
    };
    match file.fetch_all(sink).await {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(false),
        done => {
            let output = std::path::Path::new("standard output");
            done.map_err(transfer::at_local("write", output)).map_err(failed)?;
        }
    }
    file.close().await.map_err(failed)?;
    Ok(true)
}
