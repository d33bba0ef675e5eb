//! `frevo import`: converts Samba's smb.conf to a frevo.toml.
//!
//! Nothing becomes more open by the conversion. A share that Samba restricts in a way that Frevo
//! cannot is written as a comment; an option of `[global]` of that kind keeps everything from
//! being written. The report is sorted by weight.

mod access_options;
mod conversion;
mod dfs_links;
mod domain;
mod global;
mod global_options;
mod guests;
mod host_facts;
mod host_look;
mod hosts;
mod include;
mod ldap;
mod modes;
mod modules;
mod names;
mod options;
mod pam;
mod recycle;
mod report;
mod share;
mod share_modules;
mod smb_conf;
mod toml_text;
mod whole;
mod words;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use frevo_config::MachineSid;

use crate::arguments;
use crate::bounded_input;
use crate::console::{print, print_text, tell};
use crate::exit::{Done, Exit, Failure, is_json};
use crate::machine_sid;

use self::host_facts::HostFacts;
use self::include::{Includes, Origin};
use self::report::Report;
use self::smb_conf::{SmbConf, SyntaxFault};
use self::whole::convert;
use self::words::truth;

/// The largest smb.conf that is read, bytes.
const BYTES_MAX: u64 = 4 << 20;

/// The beginning of what `testparm -s` prints.
const TESTPARM_BEGIN: &str = "# Global parameters\n";

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
    let text = bounded_input::text(bounded_input::read(&import.file, BYTES_MAX)?, &import.file)?;
    let origin = match machine_sid::is_of_this_host(&import.file) {
        _ if import.testparm => Origin::Testparm,
        true => Origin::ThisHost,
        false => Origin::OtherHost,
    };
    if origin == Origin::Testparm && !text.starts_with(TESTPARM_BEGIN) {
        let text = format!(
            "{shown} is not what `testparm -s` prints, which begins with \"{}\"; leave --testparm out",
            TESTPARM_BEGIN.trim_end()
        );
        return Err(Failure::new(Exit::Config, text));
    }
    let conf = parse(&text, &import.file, origin)?;
    let mut host = HostFacts::look(&conf, &text, &import.file);
    host.domain_sid = import.domain_sid.or(host.domain_sid);
    let (toml, report) = convert(&conf, &import.accept, &host);
    if !is_json() {
        report.lines().iter().for_each(tell);
    } else if report.is_refused() {
        print_object(None, &report)?;
    }
    if report.is_refused() {
        let accepting = match report.accepting() {
            none if none.is_empty() => String::new(),
            flags => format!(", or leave the options out: {flags}"),
        };
        let is_perhaps_printed = !import.testparm && text.starts_with(TESTPARM_BEGIN);
        let printed =
            if is_perhaps_printed { ", or add --testparm if testparm printed it" } else { "" };
        let text = format!("{shown} was not converted; change the lines above{accepting}{printed}");
        return Err(Failure::new(Exit::Config, text));
    }
    let sid = import.sid.or_else(|| machine_sid::of_samba(&import.file));
    let toml = with_sid(toml, sid);
    match &import.output {
        Some(path) => write_new(path, &toml)?,
        None if !is_json() => print_text(&toml)?,
        None => {}
    }
    if is_json() { print_object(Some(&toml), &report) } else { Ok(()) }
}

/// Prints the configuration, if there is one, and the report as a JSON object.
fn print_object(toml: Option<&str>, report: &Report) -> Done {
    let object = serde_json::json!({ "toml": toml, "report": report.objects() });
    print(format!("{object}\n").as_bytes())
}

/// Reads an smb.conf with the files that it includes, if it is of this host.
fn parse(text: &str, path: &Path, origin: Origin) -> Result<SmbConf, Failure> {
    let mut includes = Includes::of(origin, BYTES_MAX);
    let mut conf = SmbConf::parse_with(text, &mut |path| includes.read(path)).map_err(
        |SyntaxFault { file, line, what }| {
            let file = file.unwrap_or_else(|| path.display().to_string());
            Failure::new(Exit::Config, format!("{file}:{line}: {what}"))
        },
    )?;
    if origin == Origin::Testparm {
        conf.settle("copy", "testparm has taken the lines of that share over");
    }
    match includes.failure {
        Some(failure) => Err(failure),
        None => Ok(conf),
    }
}

/// True if the Samba of this host has `obey pam restrictions = yes`: then it refuses accounts whose
/// Unix accounts have ended.
///
/// # Errors
/// If its smb.conf is there and cannot be read.
pub(crate) fn obeys_pam() -> Result<bool, Failure> {
    obeys_pam_in(&machine_sid::SMB_CONFS.map(Path::new))
}

/// Looks into the first smb.conf that is there.
fn obeys_pam_in(paths: &[&Path]) -> Result<bool, Failure> {
    for path in paths {
        let bytes = match bounded_input::read(path, BYTES_MAX) {
            Err(failure) if failure.exit == Exit::NotFound => continue,
            read => read?,
        };
        let conf = parse(&bounded_input::text(bytes, path)?, path, Origin::ThisHost)?;
        let said = conf.global().and_then(|global| global.value("obey pam restrictions"));
        return Ok(said.is_some_and(|said| truth(said) != Some(false)));
    }
    Ok(false)
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
