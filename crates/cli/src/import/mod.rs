//! `frevo import`: converts Samba's smb.conf to a frevo.toml.
//!
//! Nothing becomes more open by the conversion. A share that Samba restricts in a way that Frevo
//! cannot is written as a comment; an option of `[global]` of that kind keeps everything from
//! being written. The report is sorted by weight.

mod access_options;
mod conversion;
mod global;
mod global_options;
mod hosts;
mod modules;
mod options;
mod recycle;
mod report;
mod share;
mod share_modules;
mod smb_conf;
mod toml_text;
mod whole;
mod words;

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use frevo_server::config::MachineSid;

use crate::arguments;
use crate::console::{print, tell};
use crate::exit::{Done, Exit, Failure};
use crate::machine_sid;

use self::smb_conf::SmbConf;
use self::whole::convert;

/// The largest smb.conf that is read, bytes.
const BYTES_MAX: u64 = 4 << 20;

/// Writes the SID of the Samba server into `[server]`, so that access lists go on to name its
/// accounts.
fn with_sid(toml: String, sid: Option<MachineSid>) -> String {
    match sid {
        Some(sid) => toml.replacen("[server]\n", &format!("[server]\nsid = \"{sid}\"\n"), 1),
        None => {
            tell(
                "note [global]: the SID of the Samba server is not known here; give it with --sid \
                 (net getlocalsid tells it), so that access lists go on to name its accounts",
            );
            toml
        }
    }
}

pub(crate) fn run(import: &arguments::Import) -> Done {
    let shown = import.file.display();
    let text = read(&import.file)?;
    let conf = SmbConf::parse(&text)
        .map_err(|(line, why)| Failure::new(Exit::Config, format!("{shown}:{line}: {why}")))?;
    let (toml, report) = convert(&conf, &import.accept);
    for line in report.lines() {
        tell(line);
    }
    if report.is_refused() {
        let accepting = match report.accepting() {
            none if none.is_empty() => String::new(),
            flags => format!(", or leave the options out: {flags}"),
        };
        let text = format!("{shown} was not converted; change the lines above{accepting}");
        return Err(Failure::new(Exit::Config, text));
    }
    let sid = import.sid.or_else(|| machine_sid::of_samba(&import.file));
    let toml = with_sid(toml, sid);
    match &import.output {
        None => print(toml.as_bytes()),
        Some(path) => write_new(path, &toml),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(BYTES_MAX).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes))
    };
    read.map_err(|error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let exit = if missing { Exit::NotFound } else { Exit::Failed };
        Failure::new(exit, format!("cannot read {}: {error}", path.display()))
    })?;
    String::from_utf8(bytes)
        .map_err(|_| Failure::new(Exit::Config, format!("{} is not UTF-8", path.display())))
}

fn write_new(path: &Path, toml: &str) -> Done {
    let mut options = OpenOptions::new();
    let written = options
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)
        .and_then(|mut file| file.write_all(toml.as_bytes()));
    written.map_err(|error| {
        let shown = path.display();
        let text = if error.kind() == std::io::ErrorKind::AlreadyExists {
            format!("{shown} exists already; remove it, or choose another name with -o")
        } else {
            format!("cannot write {shown}: {error}")
        };
        Failure::new(Exit::Failed, text)
    })
}

#[cfg(test)]
mod tests;
