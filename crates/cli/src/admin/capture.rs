//! `frevo capture`: messages of clients of this machine's server, in a file.

use std::cell::Cell;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::pin::pin;
use std::time::{Duration, Instant};

use frevo_admin::CaptureBody;
use frevo_capture::cut::CaptureData;
use frevo_capture::pcapng::read::last_comment;
use serde_json::json;
use tokio::signal::ctrl_c;
use tokio::time::timeout;

use super::arguments::CaptureArguments;
use super::socket::{ask, follow};
use crate::console::{print, tell};
use crate::exit::{Done, Exit, Failure};
use crate::remote::output::human;

/// Bytes at the end of a file in which its last block is.
const LAST_BYTES: usize = 4096;

/// Time for the last blocks of a capture that is ended.
const LAST_BLOCKS: Duration = Duration::from_secs(10);

/// The file, as far as it is written.
struct Written {
    file: File,
    bytes: u64,
    last: Vec<u8>,
    error: Option<std::io::Error>,
}

impl Written {
    /// Writes a part. Returns false if the file takes no more.
    fn take(&mut self, part: &[u8]) -> bool {
        if let Err(error) = self.file.write_all(part) {
            self.error = Some(error);
            return false;
        }
        self.bytes += part.len() as u64;
        self.last.extend_from_slice(part);
        let more = self.last.len().saturating_sub(LAST_BYTES);
        self.last.drain(..more);
        true
    }
}

pub(super) async fn run(arguments: &CaptureArguments) -> Done {
    let shown = arguments.file.display().to_string();
    let file = frevo_capture::live::create(&arguments.file).map_err(|error| {
        let exists = error.kind() == ErrorKind::AlreadyExists;
        let (exit, advice) = match exists {
            true => (Exit::Usage, "; choose another name: a capture never replaces a file"),
            false => (Exit::Failed, ""),
        };
        Failure::new(exit, format!("cannot make the capture {shown}: {error}{advice}"))
    })?;
    let body = CaptureBody {
        session: arguments.session.clone(),
        user: arguments.user.clone(),
        address: arguments.address,
        share: arguments.share.clone(),
        all: arguments.all,
        bytes: arguments.capture_size,
        seconds: arguments.time,
        secrets: arguments.capture_secrets,
        data_bytes: first(arguments.capture_data),
        all_data: arguments.capture_data == CaptureData::Whole,
    };
    let body = json!(body).to_string();
    let mut written = Written { file, bytes: 0, last: Vec::new(), error: None };
    let began = Instant::now();
    let captured = fetch(arguments, &shown, &body, &mut written).await;
    if captured.is_err() && written.bytes == 0 {
        // The capture did not begin, so the empty file is removed.
        let _ = std::fs::remove_file(&arguments.file);
    }
    captured?;
    if let Some(error) = written.error {
        return Err(Failure::new(Exit::Failed, format!("the capture {shown} ends early: {error}")));
    }
    finish(arguments, &shown, &written, began.elapsed())
}

/// Returns the bytes of data to keep; None for all.
const fn first(data: CaptureData) -> Option<usize> {
    match data {
        CaptureData::Whole => None,
        CaptureData::First(bytes) => Some(bytes),
    }
}

/// Writes what the server captures, until it ends the capture, because of Ctrl-C if not before.
async fn fetch(
    arguments: &CaptureArguments,
    shown: &str,
    body: &str,
    written: &mut Written,
) -> Done {
    let is_begun = Cell::new(false);
    let captured = follow(&arguments.place, "/capture", body, |part| {
        if !is_begun.replace(true) {
            let seconds = arguments.time;
            tell(format_args!("capturing to {shown} for {seconds} s at most; Ctrl-C ends it"));
        }
        written.take(part)
    });
    let mut captured = pin!(captured);
    tokio::select! {
        done = &mut captured => return done,
        _ = ctrl_c() => {}
    }
    if is_begun.get() {
        // The messages that wait, and the end of the file, still come.
        let _ = ask(&arguments.place, "/capture/end", Some("{}")).await;
        return timeout(LAST_BLOCKS, captured).await.unwrap_or(Ok(()));
    }
    Ok(())
}

fn finish(arguments: &CaptureArguments, shown: &str, written: &Written, time: Duration) -> Done {
    let comment = last_comment(&written.last);
    if arguments.place.json {
        let seconds = time.as_secs_f64();
        let object = json!({ "file": shown, "bytes": written.bytes, "seconds": seconds, "content": comment });
        return print(format!("{object}\n").as_bytes());
    }
    let comment = comment.map_or_else(String::new, |comment| format!("; {comment}"));
    tell(format_args!("{shown}: {}{comment}", human(written.bytes)));
    Ok(())
}
