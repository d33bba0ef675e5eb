//! Exit codes and failures.

use std::fmt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_client::Status;

/// The exit codes, documented in `--help` and in docs/user-guide.md. 2, a
/// command line that makes no sense, is clap's too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// A failure without a code of its own.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// The configuration is wrong.
    Config = 3,
    /// A secret is missing, wrong or readable by others.
    Auth = 4,
    /// The server cannot be reached.
    Connect = 5,
    /// A named file, share or account does not exist.
    NotFound = 6,
    /// No failure: something was changed, and `--exit-code` was given.
    Changed = 7,
    /// Ctrl-C: 128 and the number of SIGINT, as in shells.
    Interrupted = 130,
}

/// The list of exit codes at the end of every `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 failed, 2 usage, 3 bad configuration, 4 authentication \
(a secret is missing, wrong or readable by others), 5 cannot connect, 6 not found, 130 interrupted";

/// The failure of a command: its exit code and one sentence for people.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    /// The operation that failed, for JSON output.
    pub(crate) during: Option<Box<During>>,
}

/// An operation that failed.
#[derive(Debug)]
pub(crate) struct During {
    pub(crate) operation: &'static str,
    /// The file, directory or server of the operation.
    pub(crate) path: String,
    /// The server's status. None when it was not the server that refused.
    pub(crate) status: Option<Status>,
}

/// True when failures and notes are written as JSON.
static JSON: AtomicBool = AtomicBool::new(false);

/// Switches failures and notes to JSON, one object per line.
pub(crate) fn speak_json() {
    JSON.store(true, Ordering::Relaxed);
}

/// True when failures and notes are written as JSON.
pub(crate) fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), during: None }
    }

    /// The failure as a JSON object. All members are always present.
    pub(crate) fn object(&self) -> serde_json::Value {
        let during = self.during.as_deref();
        let status = during.and_then(|during| during.status);
        serde_json::json!({
            "message": self.message,
            "operation": during.map(|during| during.operation),
            "path": during.map(|during| &during.path),
            "status": status.map(|status| status.to_string()),
            "code": status.map(|status| status.code()),
            "exit": self.exit as u8,
        })
    }

    /// The failure with the operation and the path that it concerns.
    pub(crate) fn of(self, operation: &'static str, path: impl fmt::Display) -> Self {
        let during = During { operation, path: path.to_string(), status: None };
        Self { during: Some(Box::new(during)), ..self }
    }

    /// For [`Result::map_err`]: a failure with the text `tried: error`.
    pub(crate) fn failed<E: fmt::Display>(tried: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self::new(Exit::Failed, format!("{tried}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<&Failure> for ExitCode {
    fn from(failure: &Failure) -> Self {
        Self::from(failure.exit as u8)
    }
}

/// The outcome of a command.
pub(crate) type Done = Result<(), Failure>;
