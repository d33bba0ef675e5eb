//! Standard output and standard error of all commands.

use std::io::Write;

use crate::exit::{self, Done, Failure};
use crate::printable::printable;
use crate::remote::progress;

/// Writes to standard output. A reader that has closed it is no failure.
pub(crate) fn print(text: &[u8]) -> Done {
    let mut out = std::io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::failed("cannot write to standard output")(error))
        }
        _ => Ok(()),
    }
}

/// Writes text with names from files or servers to standard output. A terminal is sent no control
/// characters but ends of lines.
pub(crate) fn print_text(text: &str) -> Done {
    if !std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        return print(text.as_bytes());
    }
    print(shown_lines(text).as_bytes())
}

/// `text` with each of its lines as [`printable`].
fn shown_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<String>>().join("\n")
}

/// Writes a failure to standard error, as text or as a JSON object.
pub(crate) fn tell_failure(failure: &Failure) {
    if exit::is_json() {
        // If standard error is closed, the message cannot be shown anywhere.
        let _ = writeln!(std::io::stderr(), "{}", failure.object());
    } else {
        tell(failure);
    }
}

/// Writes a line to standard error: in JSON output a note, which is no failure.
pub(crate) fn tell(line: impl std::fmt::Display) {
    let mut err = std::io::stderr();
    if exit::is_json() {
        let _ = writeln!(err, "{}", serde_json::json!({ "note": line.to_string() }));
        return;
    }
    let is_terminal = std::io::IsTerminal::is_terminal(&err);
    let line = line.to_string();
    let text = if is_terminal { shown_lines(&line) } else { line };
    // If standard error is closed, the note cannot be shown anywhere.
    let _ = progress::beside(|| writeln!(err, "frevo: {text}"));
}

#[cfg(test)]
mod tests {
    use super::shown_lines;

    #[test]
    fn control_characters_of_lines_are_not_shown() {
        assert_eq!(shown_lines("a\u{1b}[2J\nb\r\n"), "a?[2J\nb?\n");
    }
}
