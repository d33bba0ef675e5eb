//! `mount.frevo`: the program that mount(8) calls for `mount -t frevo` and a line in fstab.
//!
//! A link of that name to this program is all that it takes:
//! `mount.frevo SOURCE FOLDER [-sfnv] [-o OPTION,...]` becomes `frevo mount`. Options of mount.cifs
//! are translated, ignored with a sentence, or refused with a sentence that says what to use.

mod table;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Args;

use super::arguments::Mount;
use crate::exit::{Exit, Failure};
use table::{PASSWORD, Treatment, by_value, treatment};

/// The name of the link.
const HELPER: &str = "mount.frevo";

/// The command line of this program.
pub(crate) struct CommandLine {
    /// The arguments behind the program's name, as if it had been called `frevo`.
    pub(crate) arguments: Vec<OsString>,
    /// Sentences about mount options that are ignored.
    pub(crate) notes: Vec<String>,
}

/// Returns the command line of this program.
///
/// # Errors
/// A usage error for an option of mount(8) that is refused.
pub(crate) fn command_line() -> Result<CommandLine, Failure> {
    let mut all = std::env::args_os();
    let name = all.next().unwrap_or_default();
    let rest: Vec<OsString> = all.collect();
    if Path::new(&name).file_name() != Some(OsStr::new(HELPER)) {
        return Ok(CommandLine { arguments: rest, notes: Vec::new() });
    }
    let mut translated = Translation::of(&rest)?;
    let notes = std::mem::take(&mut translated.notes);
    Ok(CommandLine { arguments: translated.line(), notes })
}

/// The arguments of mount(8) as arguments of `frevo mount`.
#[derive(Debug, Default)]
struct Translation {
    flags: Vec<OsString>,
    /// Source and folder, and further words, which the parser refuses.
    words: Vec<OsString>,
    user: Option<String>,
    domain: Option<String>,
    port: Option<u16>,
    /// A directory in the share.
    prefix: Option<String>,
    /// Sentences about options that are ignored.
    notes: Vec<String>,
    /// True if unknown options are ignored (`-s`).
    is_sloppy: bool,
}

impl Translation {
    fn of(said: &[OsString]) -> Result<Self, Failure> {
        let mut out = Self::default();
        let mut options = Vec::new();
        let mut said = said.iter();
        while let Some(one) = said.next() {
            match one.to_str() {
                Some("-o") => options.extend(said.next().cloned()),
                Some(flags) if is_flags(flags) => {
                    // mount(8) passes -v and -n, which are ignored, and -f, which means --fake (not
                    // the option -f of `frevo mount`).
                    if flags.contains('f') {
                        out.flags.push("--fake".into());
                    }
                    out.is_sloppy |= flags.contains('s');
                }
                // The program is called as mount.TYPE, so the type after -t is not needed and
                // skipped.
                Some("-t") => drop(said.next()),
                Some(flag) if flag.starts_with('-') => out.flags.push(one.clone()),
                _ => out.words.push(one.clone()),
            }
        }
        for all in options {
            match all.to_str() {
                Some(all) => all.split(',').try_for_each(|option| out.take(option))?,
                None => return Err(usage("mount options must be UTF-8")),
            }
        }
        out.finish()
    }

    /// Takes one of the options behind `-o`.
    fn take(&mut self, option: &str) -> Result<(), Failure> {
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        let refused = |why: &str| usage(&format!("mount option {name}: {why}"));
        match (name, value) {
            // `user` without a name lets ordinary users mount, which mount(8) handles itself.
            ("user", None) => {}
            ("user" | "username", Some(user)) => {
                // mount.cifs takes user%password, but a password on the command line is visible to
                // other users, so it is refused.
                if user.contains('%') {
                    let why = "write the password in a credentials file: credentials=FILE";
                    return Err(refused(why));
                }
                self.user = Some(user.replace('/', "\\"));
            }
            ("domain" | "dom" | "workgroup", Some(domain)) => self.domain = Some(domain.into()),
            ("port", Some(port)) => {
                let port = port.parse().map_err(|_| refused("write a number from 1 to 65535"))?;
                self.port = Some(port);
            }
            ("prefixpath", Some(prefix)) => self.prefix = Some(prefix.into()),
            ("uid" | "gid", Some(value)) => {
                let number = number_of(name, value).ok_or_else(|| {
                    refused(&format!("this machine has no {value}; write a number"))
                })?;
                self.flags.extend([format!("--{name}").into(), number.to_string().into()]);
            }
            (name, _) if name.starts_with("x-") || name.starts_with("comment") => {}
            _ => {
                let known = value.and_then(|value| by_value(name, value));
                return self.treat(option, name, value, known.or_else(|| treatment(name)));
            }
        }
        Ok(())
    }

    fn treat(
        &mut self,
        option: &str,
        name: &str,
        value: Option<&str>,
        treatment: Option<Treatment>,
    ) -> Result<(), Failure> {
        let with =
            |flag: &str| std::iter::once(OsString::from(flag)).chain(value.map(OsString::from));
        match treatment {
            Some(Treatment::Usual) => {}
            Some(Treatment::Means(flags)) => self.flags.extend(flags.iter().map(OsString::from)),
            Some(Treatment::WithValue(flag)) => self.flags.extend(with(flag)),
            Some(Treatment::Ignored(why)) => {
                self.notes.push(format!("mount option {option} is ignored: {why}"));
            }
            Some(Treatment::Refused(why)) => {
                // The message contains only the option's name, because its value may be a password.
                let told = if is_password(name) { name } else { option };
                return Err(usage(&format!("mount option {told}: {why}")));
            }
            // The option is the name of a flag of this command, such as allow_other or file_mode.
            None if is_flag(&name.replace('_', "-")) => {
                self.flags.extend(with(&format!("--{}", name.replace('_', "-"))));
            }
            // Options for passwords are refused even with -s, because the part of a password after
            // a comma would be taken for the next option.
            None if is_password(name) => {
                return Err(usage(&format!("mount option {name}: {PASSWORD}")));
            }
            // The value of an unknown option is not printed, because it may be a secret.
            None if self.is_sloppy => {
                self.notes.push(format!("mount option {name} is unknown and ignored"));
            }
            None => {
                let text = format!(
                    "mount option {name} is unknown; `frevo mount --help` lists the options, which \
                     are written with _ for - here"
                );
                return Err(usage(&text));
            }
        }
        Ok(())
    }

    /// Applies the options that belong to others.
    fn finish(mut self) -> Result<Self, Failure> {
        match (self.user.take(), self.domain.take()) {
            (Some(user), Some(domain)) if !user.contains(['\\', '@']) => {
                self.flags.extend(["--user".into(), format!("{domain}\\{user}").into()]);
            }
            (Some(user), _) => self.flags.extend(["--user".into(), user.into()]),
            (None, Some(domain)) => {
                let text = format!(
                    "mount option domain={domain}: give username=, too, or write the line \
                     domain={domain} in the credentials file"
                );
                return Err(usage(&text));
            }
            (None, None) => {}
        }
        let (port, prefix) = (self.port.take(), self.prefix.take());
        if let Some(source) = self.words.first_mut()
            && (port.is_some() || prefix.is_some())
        {
            let text = source.to_str().map(str::to_owned);
            let placed = text.and_then(|text| placed(&text, port, prefix.as_deref()));
            let wrong = "mount options port= and prefixpath= need a source //SERVER/SHARE";
            *source = placed.ok_or_else(|| usage(wrong))?.into();
        }
        Ok(self)
    }

    fn line(self) -> Vec<OsString> {
        let Self { flags, words, .. } = self;
        std::iter::once(OsString::from("mount")).chain(words).chain(flags).collect()
    }
}

fn usage(text: &str) -> Failure {
    Failure::new(Exit::Usage, text)
}

/// True for an option whose value is probably a password, as it is written here and there.
fn is_password(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("pass") || name == "pwd"
}

/// True if `frevo mount` has this flag.
fn is_flag(name: &str) -> bool {
    let mount = Mount::augment_args(clap::Command::new("mount"));
    mount.get_arguments().any(|one| one.get_long() == Some(name))
}

/// Puts a port and a directory into a source `//SERVER/SHARE`, which has no port yet.
fn placed(source: &str, port: Option<u16>, prefix: Option<&str>) -> Option<String> {
    let over_quic = source.strip_prefix("smb+quic:");
    let rest = source.strip_prefix("smb:").or(over_quic).unwrap_or(source).strip_prefix("//")?;
    let scheme = if over_quic.is_some() { "smb+quic:" } else { "" };
    let (server, share) = rest.split_once('/')?;
    let server = match port {
        Some(port) if !server.rsplit(']').next()?.contains(':') => format!("{server}:{port}"),
        Some(_) => return None,
        None => server.to_owned(),
    };
    let prefix = prefix.unwrap_or_default().trim_matches('/');
    let slash = if prefix.is_empty() { "" } else { "/" };
    Some(format!("{scheme}//{server}/{}{slash}{prefix}", share.trim_end_matches('/')))
}

/// The number of a user or group, which may be given by its name in the files of this machine.
fn number_of(option: &str, value: &str) -> Option<u32> {
    if let Ok(number) = value.parse() {
        return Some(number);
    }
    let file = if option == "uid" { "/etc/passwd" } else { "/etc/group" };
    let all = std::fs::read_to_string(file).ok()?;
    let mut fields = all.lines().map(|line| line.split(':'));
    fields.find_map(|mut line| (line.next() == Some(value)).then(|| line.nth(1))?)?.parse().ok()
}

/// True for flags of mount(8), alone or together: `-s`, `-fnv`.
fn is_flags(said: &str) -> bool {
    said.strip_prefix('-').is_some_and(|letters| {
        !letters.is_empty() && letters.chars().all(|letter| "sfnv".contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(said: &[&str]) -> Result<Translation, Failure> {
        let said: Vec<OsString> = said.iter().map(OsString::from).collect();
        Translation::of(&said)
    }

    fn of(said: &[&str]) -> Vec<String> {
        let line = translated(said).unwrap().line();
        line.into_iter().map(|one| one.into_string().unwrap()).collect()
    }

    fn with(options: &str) -> Vec<String> {
        of(&["//box/photos", "/mnt", "-o", options])[3..].to_vec()
    }

    #[test]
    fn what_mount_says_is_a_command() {
        let said = ["//box/photos", "/mnt", "-s", "-o", "rw,_netdev,x-systemd.automount"];
        assert_eq!(of(&said), ["mount", "//box/photos", "/mnt"]);
        let options = "ro,uid=5,file_mode=0640,credentials=/etc/c,allow_other";
        let wanted = "--read-only --uid 5 --file-mode 0640 --credentials /etc/c --allow-other";
        assert_eq!(with(options).join(" "), wanted);
        assert_eq!(with("user,username=ann,cache=none"), ["--no-cache", "--user", "ann"]);
        assert_eq!(with("sec=krb5,keytab=/k"), ["--kerberos", "required", "--keytab", "/k"]);
        assert_eq!(with("sec=ntlmsspi"), ["--kerberos", "off"]);
        assert_eq!(with("noexec,nosuid,nodev,user"), ["--noexec"]);
        for fake in [&["-f"][..], &["-n", "-f", "-v"], &["-sfnv"]] {
            assert_eq!(of(&[&["//box/photos", "/mnt"], fake].concat())[3..], ["--fake"]);
        }
        assert_eq!(of(&["-n", "-sv", "--foreground"]), ["mount", "--foreground"]);
    }

    #[test]
    fn options_of_cifs_mean_the_same_here() {
        assert_eq!(with("vers=3.1.1"), ["--min-dialect", "3.1.1"]);
        assert_eq!(with("vers=3.0"), ["--min-dialect", "3.0", "--max-dialect", "3.0"]);
        assert_eq!(with("vers=default,iocharset=utf8,serverino,mapposix,sign"), [""; 0]);
        assert_eq!(with("domain=CORP,username=ann"), ["--user", "CORP\\ann"]);
        assert_eq!(with("username=CORP/ann,dom=OTHER"), ["--user", "CORP\\ann"]);
        assert_eq!(with("multichannel,max_channels=2"), ["--channels", "2"]);
        assert_eq!(with("guest"), ["--guest"]);
        assert_eq!(with("nounix,nodfs,seal"), ["--no-posix", "--dfs", "never", "--encrypt"]);
        assert_eq!(with("compress"), ["--compress", "on"]);
        assert_eq!(with("uid=root,gid=root"), ["--uid", "0", "--gid", "0"]);
        let line = ["//box/photos", "/mnt", "-o", "port=4450,prefixpath=/2026/may"];
        assert_eq!(of(&line)[1], "//box:4450/photos/2026/may");
        assert_eq!(of(&["//[::1]/photos", "/mnt", "-o", "port=4450"])[1], "//[::1]:4450/photos");
    }

    #[test]
    fn what_is_ignored_is_said() {
        let options = "nobrl,mfsymlinks,rsize=65536,noperm,hard,noserverino,cache=loose";
        let out = translated(&["//box/photos", "/mnt", "-o", options]).unwrap();
        assert_eq!(out.notes.len(), options.split(',').count());
        for (note, option) in out.notes.iter().zip(options.split(',')) {
            let start = format!("mount option {option} is ignored: ");
            assert!(note.starts_with(&start) && note.len() > start.len() + 10, "{note}");
        }
        assert_eq!(out.line().len(), 3);
    }

    #[test]
    fn what_is_refused_says_what_to_use() {
        for (options, words) in [
            ("vers=1.0", "SMB 1"),
            ("vers=4", "3.1.1"),
            ("iocharset=iso8859-1", "iocharset=utf8"),
            ("password=secret", "credentials=FILE"),
            ("passwd=secret", "credentials=FILE"),
            ("PASSWORD=secret", "credentials=FILE"),
            ("pwd=secret", "credentials=FILE"),
            ("kennwort=secret", "unknown"),
            ("username=ann%secret", "credentials=FILE"),
            ("domain=CORP", "username="),
            ("sec=ntlm", "sec=ntlmssp"),
            ("sec=none", "option guest"),
            ("snapshot=@GMT-2024.02.29-12.00.00", "//SERVER/SHARE/@GMT-"),
            ("multiuser", "allow_other"),
            ("port=x", "65535"),
            ("uid=nobody-of-this-name", "number"),
            ("remount", "unmount"),
            // This option is mistyped, so it is reported as unknown.
            ("rad_only", "unknown"),
        ] {
            let refused = translated(&["//box/photos", "/mnt", "-o", options]).unwrap_err();
            let (text, name) = (refused.to_string(), options.split('=').next().unwrap());
            assert!(text.contains(name) && text.contains(words), "{options}: {text}");
            assert!(!text.contains("secret"), "{text}");
        }
        let sloppy = |options| translated(&["//box/photos", "/mnt", "-s", "-o", options]);
        assert_eq!(sloppy("rad_only").unwrap().notes.len(), 1);
        let notes = sloppy("kennwort=secret").unwrap().notes;
        assert_eq!(notes, ["mount option kennwort is unknown and ignored"]);
        let refused = sloppy("PASSWD=top,secret").unwrap_err().to_string();
        assert!(refused.contains("credentials=FILE") && !refused.contains("secret"), "{refused}");
        assert!(translated(&["//box:1/photos", "/mnt", "-o", "port=2"]).is_err());
    }

    #[test]
    fn all_of_it_is_understood_by_the_parser() {
        use clap::Parser;
        let options = "ro,noexec,uid=5,gid=6,file_mode=0640,dir_mode=0750,credentials=/c,allow_other,\
                       seal,cache=none,actimeo=0,username=ann,domain=CORP,port=4450,vers=3.0,nodfs,\
                       nounix,max_channels=2,rdma,sec=krb5,umask=022,noperm,nobrl,\
                       app_instance=2f1d5e0c-7a61-4f1e-9c55-3f2b7f6f1a10,app_version=7";
        let line = ["//box/photos", "/mnt", "-f", "-o", options];
        let line = std::iter::once("frevo".to_owned()).chain(of(&line));
        crate::arguments::Arguments::try_parse_from(line).unwrap();
        for option in ["vers=2.0", "vers=2.1", "vers=3.0.2", "vers=3.1.1", "guest"] {
            let line = of(&["//box/photos", "/mnt", "-o", option]);
            let line = std::iter::once("frevo".to_owned()).chain(line);
            crate::arguments::Arguments::try_parse_from(line).unwrap();
        }
    }
}
