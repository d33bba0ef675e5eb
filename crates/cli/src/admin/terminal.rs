//! The terminal as a screen of its own, and back.

use std::io::Write;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::exit::{Done, Failure};

/// The size of a terminal.
#[derive(Clone, Copy)]
pub(super) struct Size {
    /// Columns.
    pub(super) width: usize,
    /// Lines.
    pub(super) height: usize,
}

/// The other screen of the terminal, without a cursor; the first one comes back at the end.
pub(super) struct Screen {
    /// The terminal's modes before. None without one to read keys from.
    before: Option<Termios>,
}

const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";

impl Screen {
    pub(super) fn enter() -> Result<Self, Failure> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).ok();
        if let Some(before) = &before {
            let mut modes = before.clone();
            // Without ICANON and ECHO, keys arrive one by one and are not echoed, but Ctrl-C still
            // sends a signal.
            modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            let _ = tcsetattr(&stdin, OptionalActions::Now, &modes);
        }
        let screen = Self { before };
        write(ENTER)?;
        Ok(screen)
    }

    /// Returns the number of columns and of lines.
    pub(super) fn size(&self) -> Size {
        match tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_col > 0 => {
                Size { width: usize::from(size.ws_col), height: usize::from(size.ws_row) }
            }
            _ => Size { width: 80, height: 24 },
        }
    }

    /// Shows lines, and nothing else.
    pub(super) fn show(&self, lines: &[String]) -> Done {
        // Each line is overwritten instead of cleared, so that the screen does not flicker.
        let mut picture = String::from("\x1b[H");
        picture.push_str(&lines.join("\x1b[K\r\n"));
        picture.push_str("\x1b[K\x1b[J");
        write(picture.as_bytes())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write(LEAVE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn write(bytes: &[u8]) -> Done {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.map_err(Failure::failed("cannot write to the terminal"))
}
