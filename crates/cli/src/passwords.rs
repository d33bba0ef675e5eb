//! Passwords: typed, read from files, or generated.

use std::ffi::OsStr;
use std::io::{BufRead, ErrorKind, IsTerminal};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::{Args, ValueHint};
use frevo_auth::Zeroizing;

use crate::exit::{Exit, Failure};
use crate::secret_file;

/// Longest password, bytes.
const BYTES_MAX: usize = 1_024;

/// Letters and digits that cannot be mistaken: no 0 and o, no 1, i and l.
const ALPHABET: &[u8; 31] = b"23456789abcdefghjkmnpqrstuvwxyz";

/// Letters of a generated password in each of its two groups: 31^10 is a little
/// less than 2^50.
const GROUP: usize = 5;

/// Where a password comes from. Never from the command line, which others see.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PasswordFrom {
    /// Read the password from standard input instead of the terminal
    #[arg(long, conflicts_with = "password_file")]
    pub(crate) password_stdin: bool,

    /// Read the password from a file; only its owner may be able to read it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) password_file: Option<PathBuf>,
}

impl PasswordFrom {
    /// True if the password does not come from the terminal.
    pub(crate) const fn is_named(&self) -> bool {
        self.password_stdin || self.password_file.is_some()
    }
}

/// A password from where the command line says or, twice, from the terminal.
pub(crate) fn ask(from: &PasswordFrom, name: &str) -> Result<Zeroizing<String>, Failure> {
    if let Some(file) = &from.password_file {
        return from_file(file);
    }
    if from.password_stdin {
        let mut line = Zeroizing::new(String::with_capacity(BYTES_MAX + 2));
        let stdin = std::io::stdin().lock();
        std::io::Read::take(stdin, BYTES_MAX as u64 + 2)
            .read_line(&mut line)
            .map_err(Failure::failed("cannot read the password from standard input"))?;
        return usable(&line, "standard input");
    }
    if !std::io::stdin().is_terminal() {
        let advice = "cannot ask for a password: standard input is not a terminal; use --password-stdin or --password-file";
        return Err(Failure::new(Exit::Usage, advice));
    }
    let first = prompt(&format!("New password for {name}: "))?;
    if first.is_empty() {
        return Err(Failure::new(Exit::Auth, "the password is empty; nothing was changed"));
    }
    let password = usable(&first, "the terminal")?;
    if *prompt("Again: ")? != *first {
        return Err(Failure::new(Exit::Auth, "the two passwords differ; nothing was changed"));
    }
    Ok(password)
}

/// Asks for a password on the terminal, without showing what is typed.
pub(crate) fn prompt(text: &str) -> Result<Zeroizing<String>, Failure> {
    rpassword::prompt_password(text).map(Zeroizing::new).map_err(|error| match error.kind() {
        ErrorKind::Interrupted => Failure::new(Exit::Interrupted, "interrupted"),
        // open(2) of /dev/tty without a terminal is ENXIO, or ENOENT in some containers.
        _ if !has_terminal() => Failure::new(
            Exit::Usage,
            "cannot ask for a password: there is no terminal; use --password-stdin",
        ),
        _ => Failure::failed("cannot ask for the password")(error),
    })
}

/// True if the process has a terminal.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// The password in a file that only its owner can read.
pub(crate) fn from_file(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let shown = path.display();
    let text = secret_file::read(path)?.ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("there is no password file {shown}"))
    })?;
    usable(&text, &format!("the file {shown}"))
}

/// The variable with a password.
pub(crate) const VARIABLE: &str = "FREVO_PASSWORD";

/// The value that [`VARIABLE`] had when the program started.
static GIVEN: OnceLock<Option<Zeroizing<Vec<u8>>>> = OnceLock::new();

/// Takes the password out of the environment, where other programs of the user, and all that this
/// one starts, could read it. Before the program has other threads.
pub(crate) fn leave_environment() {
    let value = frevo_posix::environment::take_variable(c"FREVO_PASSWORD");
    // If `GIVEN` is set already, it keeps its first value.
    let _ = GIVEN.set(value.map(|value| Zeroizing::new(value.into_vec())));
}

fn given() -> Option<&'static Zeroizing<Vec<u8>>> {
    GIVEN.get()?.as_ref()
}

/// True if the environment had a password.
pub(crate) fn is_in_environment() -> bool {
    given().is_some()
}

/// The password that the environment had, for this program when it is started again.
pub(crate) fn for_environment() -> Option<&'static OsStr> {
    given().map(|value| OsStr::from_bytes(value))
}

/// The password that the environment had, if there was one.
pub(crate) fn from_environment() -> Result<Option<Zeroizing<String>>, Failure> {
    let Some(value) = given() else { return Ok(None) };
    match std::str::from_utf8(value) {
        Ok(text) => usable(text, VARIABLE).map(Some),
        Err(_) => Err(Failure::new(Exit::Auth, "FREVO_PASSWORD is not valid UTF-8")),
    }
}

/// The first line, without its end.
fn usable(text: &str, place: &str) -> Result<Zeroizing<String>, Failure> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let refuse = |why: &str| Failure::new(Exit::Auth, format!("the password in {place} {why}"));
    check_new(line).map_err(|why| refuse(why.trim_start_matches("it ")))?;
    Ok(Zeroizing::new(line.to_owned()))
}

/// Refuses what cannot be a password, with the reason.
pub(crate) fn check_new(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Err("it is empty"),
        text if text.contains(['\n', '\r', '\0']) => Err("it has more than one line"),
        text if text.len() > BYTES_MAX => Err("it is longer than 1024 bytes"),
        _ => Ok(()),
    }
}

/// A password that is hard to guess and easy to type.
pub(crate) fn generate() -> Result<Zeroizing<String>, Failure> {
    let mut password = Zeroizing::new(String::with_capacity(2 * GROUP + 1));
    while password.len() < 2 * GROUP + 1 {
        if password.len() == GROUP {
            password.push('-');
        }
        let mut byte = [0];
        getrandom::fill(&mut byte)
            .map_err(Failure::failed("cannot get random bytes from the system"))?;
        // 248 is 8 times 31: larger bytes are skipped, so that each of the 31 letters is equally
        // likely.
        if byte[0] < 248 {
            password.push(char::from(ALPHABET[usize::from(byte[0] % 31)]));
        }
    }
    Ok(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_passwords_have_enough_to_guess() {
        let bits = (2 * GROUP) as f64 * (ALPHABET.len() as f64).log2();
        assert!(bits >= 40.0, "{bits}");
        let mut seen = std::collections::HashSet::new();
        for _ in 0..200 {
            let password = generate().unwrap();
            let (a, b) = password.split_once('-').unwrap();
            assert!(a.len() == GROUP && b.len() == GROUP);
            assert!(password.chars().all(|c| c == '-' || ALPHABET.contains(&(c as u8))));
            assert!(!password.contains(['0', 'o', '1', 'l', 'i']));
            assert!(seen.insert(password.to_string()));
        }
    }

    #[test]
    fn a_password_is_one_line() {
        assert_eq!(*usable("a b \n", "x").unwrap(), "a b ");
        assert_eq!(*usable("secret\r\n", "x").unwrap(), "secret");
        assert_eq!(*usable("secret", "x").unwrap(), "secret");
        for bad in ["", "\n", "a\nb\n", "a\0"] {
            assert_eq!(usable(bad, "x").unwrap_err().exit, Exit::Auth);
        }
        for (n, ok) in [(BYTES_MAX - 1, true), (BYTES_MAX, true), (BYTES_MAX + 1, false)] {
            assert_eq!(usable(&"x".repeat(n), "x").is_ok(), ok);
        }
    }
}
