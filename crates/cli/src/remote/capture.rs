//! `--capture`: one file with the messages of all connections of a command.

use std::path::PathBuf;

use frevo_client::capture::{Capture, FileWriter, Outcome, Settings, create};
use parking_lot::Mutex;

use super::connection_options::Connection;
use super::output::human;
use crate::console::tell;
use crate::exit::{Done, Exit, Failure};
use crate::plural::counted;

/// The capture of this command.
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

struct Running {
    capture: Capture,
    writer: FileWriter,
    path: PathBuf,
}

/// Returns the capture that the options ask for. The first call makes its file.
pub(super) fn of(connection: &Connection) -> Result<Option<Capture>, Failure> {
    let Some(path) = &connection.capture else { return Ok(None) };
    let mut running = RUNNING.lock();
    if let Some(running) = &*running {
        return Ok(Some(running.capture.clone()));
    }
    let refused = |error: std::io::Error| {
        let exists = error.kind() == std::io::ErrorKind::AlreadyExists;
        let (exit, advice) = match exists {
            true => (Exit::Usage, "; choose another name: a capture never replaces a file"),
            false => (Exit::Failed, ""),
        };
        Failure::new(exit, format!("cannot make the capture {}: {error}{advice}", path.display()))
    };
    let file = create(path).map_err(refused)?;
    let (capture, writer) = FileWriter::start(file, &settings(connection)).map_err(refused)?;
    *running = Some(Running { capture: capture.clone(), writer, path: path.clone() });
    Ok(Some(capture))
}

fn settings(connection: &Connection) -> Settings {
    Settings {
        bytes: connection.capture_size,
        keeps_secrets: connection.capture_secrets,
        data: connection.capture_data,
        application: format!("frevo {}", env!("CARGO_PKG_VERSION")),
        comment: String::from("a capture of a client of Frevo, by --capture"),
    }
}

/// Ends the capture of the command, if it has one, and says what is in it.
pub(crate) fn finish() -> Done {
    let Some(Running { writer, path, .. }) = RUNNING.lock().take() else { return Ok(()) };
    let (outcome, error) = writer.finish();
    let path = path.display();
    if let Some(error) = error {
        return Err(Failure::new(Exit::Failed, format!("the capture {path} ends early: {error}")));
    }
    tell(format_args!("{path}: {}", summary(&outcome)));
    Ok(())
}

/// The content of a capture in words.
pub(crate) fn summary(outcome: &Outcome) -> String {
    let (messages, bytes) = (counted(outcome.messages, "frame"), human(outcome.bytes));
    let mut text = format!("{messages}, {bytes}");
    if outcome.dropped > 0 {
        let dropped = counted(outcome.dropped, "frame");
        text = format!("{text}; {dropped} left out, because writing was too slow");
    }
    if outcome.is_full {
        text.push_str("; it ended at its largest size (--capture-size)");
    }
    text
}
