//! `frevo import`: converts Samba's smb.conf to a frevo.toml.
//!
//! The report lists all parameters without an equal. A share that Samba restricts in a
//! way that Frevo cannot is written as a comment: no share becomes more open by the
//! conversion.

mod access_options;
mod global;
mod report;
mod share;
mod smb_conf;

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::arguments;
use crate::console::{print, tell};
use crate::exit::{Done, Exit, Failure};

use self::report::Report;
use self::smb_conf::SmbConf;

/// The largest smb.conf that is read, bytes.
const BYTES_MAX: u64 = 4 << 20;

pub(crate) fn run(import: &arguments::Import) -> Done {
    let shown = import.file.display();
    let text = read(&import.file)?;
    let conf = SmbConf::parse(&text)
        .map_err(|(line, why)| Failure::new(Exit::Config, format!("{shown}:{line}: {why}")))?;
    let (toml, report) = convert(&conf);
    for line in report.lines() {
        tell(line);
    }
    match &import.output {
        None => print(toml.as_bytes()),
        Some(path) => write_new(path, &toml),
    }
}

/// The frevo.toml, and what it leaves out.
fn convert(conf: &SmbConf) -> (String, Report) {
    let mut report = Report::default();
    let mut toml = String::from(
        "# Converted from an smb.conf by `frevo import`. Keys that are not here have Frevo's\n\
         # defaults: SMB 3.0 and up, signing and encryption required.\n",
    );
    let none = smb_conf::Section::global();
    let global = conf.global().unwrap_or(&none);
    toml.push_str(&global::convert(global, &mut report));
    for section in conf.shares() {
        toml.push_str(&share::convert(section, global, &mut report));
    }
    (toml, report)
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
