//! The outcome of commands that change a file or an account: for people, and for configuration tools.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use serde_json::{Value, json};

use crate::console::{print, print_text, tell};
use crate::exit::{Done, Exit, is_json};

/// The list of exit codes of commands with `--exit-code`.
pub(crate) const CHANGE_EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 failed, 2 usage, 3 bad configuration, 4 authentication \
(a secret is missing, wrong or readable by others), 5 the running server does not apply the change, \
6 not found, 7 something was changed (with --exit-code), 130 interrupted";

/// The flags of a command that changes something.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Telling {
    /// Print the outcome as a JSON object, in which "changed" is true or false
    #[arg(long)]
    json: bool,
    /// Exit with 7 if something was changed, with 0 if nothing was
    #[arg(long)]
    exit_code: bool,
    /// Change nothing, and tell what would be changed
    #[arg(long)]
    dry_run: bool,
}

/// True when the program exits with [`Exit::Changed`].
static EXITS_AS_CHANGED: AtomicBool = AtomicBool::new(false);

/// Returns the exit code of a command that has succeeded.
pub(crate) fn exit_code() -> ExitCode {
    match EXITS_AS_CHANGED.load(Ordering::Relaxed) {
        true => ExitCode::from(Exit::Changed as u8),
        false => ExitCode::SUCCESS,
    }
}

impl Telling {
    /// True if nothing is to be changed.
    pub(crate) const fn is_dry_run(self) -> bool {
        self.dry_run
    }

    /// Tells the outcome: `facts` with "changed" as JSON, or `line`, which may be empty, to people.
    pub(crate) fn finish(self, is_changed: bool, mut facts: Value, line: &str) -> Done {
        if is_changed && self.exit_code {
            EXITS_AS_CHANGED.store(true, Ordering::Relaxed);
        }
        if is_json() {
            facts["changed"] = json!(is_changed);
            facts["dry_run"] = json!(self.dry_run);
            return print(format!("{facts}\n").as_bytes());
        }
        if !line.is_empty() {
            tell(line);
        }
        Ok(())
    }
}

/// Prints the outcome of a command without a finer one: lines for people, or an object.
pub(crate) fn told(is_changed: bool, text: &str) -> Done {
    if is_json() {
        let object = json!({ "changed": is_changed, "message": text.trim_end() });
        return print(format!("{object}\n").as_bytes());
    }
    print_text(text)
}
