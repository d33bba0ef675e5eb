//! `mount.frevo`: what mount(8) calls for `mount -t frevo` and a line in fstab.
//!
//! A link of that name to this program is all that it takes:
//! `mount.frevo SOURCE FOLDER [-sfnv] [-o OPTION,...]` becomes `frevo mount`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The name of the link.
const HELPER: &str = "mount.frevo";

/// The arguments of this program behind its name, as if it had been called `frevo`.
pub(crate) fn arguments() -> Vec<OsString> {
    let mut all = std::env::args_os();
    let name = all.next().unwrap_or_default();
    let rest: Vec<OsString> = all.collect();
    if Path::new(&name).file_name() == Some(OsStr::new(HELPER)) { translated(&rest) } else { rest }
}

/// The arguments of mount(8) as arguments of `frevo mount`. Unknown ones are passed on, so
/// that the parser refuses them.
fn translated(said: &[OsString]) -> Vec<OsString> {
    let mut out = vec![OsString::from("mount")];
    let mut said = said.iter();
    while let Some(one) = said.next() {
        match one.to_str() {
            Some("-o") => {
                let options = said.next().cloned().unwrap_or_default();
                match options.to_str() {
                    Some(options) => out.extend(options.split(',').flat_map(option)),
                    None => out.push(options),
                }
            }
            Some(flags) if is_flags(flags) => {
                // Sloppy, verbose, no mtab: nothing to do about it. Fake is not the
                // command's -f, which mounts in the foreground.
                if flags.contains('f') {
                    out.push("--fake".into());
                }
            }
            // The kind of the file system, which the name says.
            Some("-t") => drop(said.next()),
            Some(source) if source.starts_with("//") => {
                // mount.cifs' spelling is understood as it is.
                out.push(source.into());
            }
            _ => out.push(one.clone()),
        }
    }
    out
}

/// True for flags of mount(8), alone or together: `-s`, `-fnv`.
fn is_flags(said: &str) -> bool {
    said.strip_prefix('-').is_some_and(|letters| {
        !letters.is_empty() && letters.chars().all(|letter| "sfnv".contains(letter))
    })
}

/// One of the options behind `-o`.
fn option(option: &str) -> Vec<OsString> {
    let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
    let with = |flag: &str| {
        let mut both = vec![OsString::from(flag)];
        both.extend(value.map(OsString::from));
        both
    };
    match name {
        "ro" => vec!["--read-only".into()],
        "credentials" | "cred" => with("--credentials"),
        "user" | "username" if value.is_some() => with("--user"),
        "seal" => vec!["--encrypt".into()],
        "sec" if value.is_some_and(|kind| kind.starts_with("krb5")) => {
            vec!["--kerberos".into(), "required".into()]
        }
        "sec" if value.is_some_and(|kind| kind.starts_with("ntlm")) => {
            vec!["--kerberos".into(), "off".into()]
        }
        "cache" if value == Some("none") => vec!["--no-cache".into()],
        "actimeo" => with("--attr-timeout"),
        // For mount(8) and systemd, or what a FUSE mount is anyway.
        "" | "rw" | "defaults" | "auto" | "noauto" | "user" | "users" | "nouser" | "owner"
        | "group" | "nofail" | "_netdev" | "exec" | "suid" | "nosuid" | "dev" | "nodev"
        | "async" | "relatime" | "noatime" | "strictatime" | "nodiratime" | "cache" => Vec::new(),
        name if name.starts_with("x-") || name.starts_with("comment") => Vec::new(),
        // The rest is called as on the command line: allow_other, uid=, file_mode=, ...
        name => with(&format!("--{}", name.replace('_', "-"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(said: &[&str]) -> Vec<String> {
        let said: Vec<OsString> = said.iter().map(OsString::from).collect();
        translated(&said).into_iter().map(|one| one.into_string().unwrap()).collect()
    }

    #[test]
    fn what_mount_says_is_a_command() {
        let said = ["//box/photos", "/mnt", "-s", "-o", "rw,_netdev,x-systemd.automount"];
        assert_eq!(of(&said), ["mount", "//box/photos", "/mnt"]);
        let said =
            ["smb://box/a", "/mnt", "-o", "ro,uid=5,file_mode=0640,credentials=/etc/c,allow_other"];
        let wanted = [
            "mount",
            "smb://box/a",
            "/mnt",
            "--read-only",
            "--uid",
            "5",
            "--file-mode",
            "0640",
            "--credentials",
            "/etc/c",
            "--allow-other",
        ];
        assert_eq!(of(&said), wanted);
        assert_eq!(
            of(&["-o", "user,username=ann,cache=none"]),
            ["mount", "--user", "ann", "--no-cache"]
        );
        assert_eq!(
            of(&["-o", "sec=krb5,keytab=/k"]),
            ["mount", "--kerberos", "required", "--keytab", "/k"]
        );
        assert_eq!(of(&["-o", "sec=ntlmsspi"]), ["mount", "--kerberos", "off"]);
        assert_eq!(of(&["-o", "noexec,nosuid,nodev,user"]), ["mount", "--noexec"]);
        for fake in [&["-f"][..], &["-n", "-f", "-v"], &["-sfnv"]] {
            assert_eq!(of(&[&["//box/photos", "/mnt"], fake].concat())[3..], ["--fake"]);
        }
        assert_eq!(of(&["-n", "-sv", "--foreground"]), ["mount", "--foreground"]);
        // A slip is not passed over.
        assert_eq!(of(&["-o", "rad_only"]), ["mount", "--rad-only"]);
    }

    #[test]
    fn all_of_it_is_understood_by_the_parser() {
        use clap::Parser;
        let options = "ro,noexec,uid=5,gid=6,file_mode=0640,dir_mode=0750,credentials=/c,allow_other,seal,cache=none,actimeo=0,username=ann";
        let line = ["//box/photos", "/mnt", "-f", "-o", options].map(OsString::from);
        let line = std::iter::once(OsString::from("frevo")).chain(translated(&line));
        crate::arguments::Arguments::try_parse_from(line).unwrap();
    }
}
