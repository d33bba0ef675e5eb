//! `cat`: prints files.

use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;

use frevo_client::Share;

use super::bandwidth::Limit;
use super::connection_options::Connection;
use super::failures::{Failures, in_order};
use super::location::Url;
use super::logon::failed;
use super::{transfer, wildcards};
use crate::exit::{Done, Failure};

/// Writes files to standard output, no more than `bwlimit` bytes a second.
pub(crate) async fn cat(connection: &Connection, urls: &[Url], bwlimit: Option<u64>) -> Done {
    let mut failures = Failures::default();
    let limit = bwlimit.map(Limit::new);
    let urls = wildcards::expand(connection, urls).await?;
    // With several files, small ones are requested ahead of the output; a single file is read as it
    // is printed.
    let is_ahead = urls.len() > 1;
    let all = urls.iter().map(async |url| {
        let (share, url) = connection.reach(url).await?;
        let start =
            if is_ahead { share.read_small(&url.path).await.map_err(failed)? } else { None };
        Ok((share, url, start.map(|(data, _)| data)))
    });
    let print = async |found: Result<(Share, Url, Option<Vec<u8>>), Failure>| {
        let printed = match found {
            Ok((_, _, Some(data))) => print_small(&data, limit.as_ref()).await,
            Ok((share, url, None)) => print(&share, &url, limit.as_ref()).await,
            Err(failure) => Err(failure),
        };
        match printed {
            // The reader of the output has closed the pipe, so the command ends without an error.
            Ok(false) => ControlFlow::Break(Ok(())),
            printed => failures.goes_on(printed.map(drop)),
        }
    };
    in_order(all, print).await?;
    failures.end("printed")
}

/// Prints a file that was read as a whole. False when the reader of the output is gone.
async fn print_small(data: &[u8], limit: Option<&Limit>) -> Result<bool, Failure> {
    if let Some(limit) = limit {
        limit.take(data.len() as u64).await;
    }
    match std::io::stdout().lock().write_all(data) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => {
            written.map(|()| true).map_err(Failure::failed("cannot write to standard output"))
        }
    }
}

/// Prints a file. False when the reader of the output is gone.
async fn print(share: &Share, url: &Url, limit: Option<&Limit>) -> Result<bool, Failure> {
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
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(false),
        done => {
            let output = std::path::Path::new("standard output");
            done.map_err(transfer::at_local("write", output)).map_err(failed)?;
        }
    }
    file.close().await.map_err(failed)?;
    Ok(true)
}
