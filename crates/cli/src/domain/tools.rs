//! The programs that manage memberships: Samba's `net ads`, and `adcli`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use frevo_auth::Zeroizing;
use frevo_config::{IdmapSection, Numbers};

use super::arguments::Tool;
use super::kdc;
use super::membership::{Membership, keytab_in};
use super::net_secrets::NetSecrets;
use crate::console::tell_failure;
use crate::exit::{Done, Exit, Failure};

/// Directories of programs of administrators, which a user's PATH may lack.
const MORE_PATH: &str = "/usr/sbin:/sbin:/usr/local/sbin";
/// The configuration of `net` in the directory of a membership.
pub(super) const SMB_CONF: &str = "smb.conf";

/// A user of the domain with the password.
pub(super) struct Credentials<'a> {
    pub(super) user: &'a str,
    pub(super) password: &'a Zeroizing<String>,
}

/// Returns the program that is asked for, or else the one that is installed.
pub(super) fn find(asked: Option<Tool>) -> Result<Tool, Failure> {
    let missing = |text: String| Failure::new(Exit::NotFound, text);
    match asked {
        Some(tool) if installed(tool.name()).is_some() => Ok(tool),
        Some(tool) => Err(missing(format!("{} is not installed", tool.name()))),
        None => [Tool::Net, Tool::Adcli]
            .into_iter()
            .find(|tool| installed(tool.name()).is_some())
            .ok_or_else(|| {
                missing(String::from(
                    "neither net (package samba-common-bin or samba-common-tools) nor adcli is \
                     installed; install one of them to join a domain",
                ))
            }),
    }
}

/// Returns the path of a program, if it is installed.
pub(super) fn installed(name: &str) -> Option<PathBuf> {
    let path = search_path();
    path.split(':').map(|dir| Path::new(dir).join(name)).find(|file| file.is_file())
}

fn search_path() -> String {
    let own = std::env::var("PATH").unwrap_or_else(|_| String::from("/usr/bin:/bin"));
    format!("{own}:{MORE_PATH}")
}

/// The calls of a membership's program.
pub(super) struct Calls<'a> {
    pub(super) member: &'a Membership,
    pub(super) state_dir: &'a Path,
    /// The keytab that the programs read and write.
    pub(super) keytab: &'a Path,
    /// The ranges of numbers that the configuration gives to domains.
    pub(super) idmaps: &'a [IdmapSection],
}

impl Calls<'_> {
    /// Makes the machine account, and its keytab.
    pub(super) fn join(&self, by: &Credentials<'_>, ou: Option<&str>) -> Done {
        let member = self.member;
        match member.tool {
            Tool::Net => {
                self.write_smb_conf()?;
                let mut join = self.net(&["ads", "join", "--no-dns-updates"]);
                join.arg(format!("dnshostname={}", member.host));
                join.arg("osName=Frevo").arg(format!("osVer={}", env!("CARGO_PKG_VERSION")));
                if let Some(ou) = ou {
                    join.arg(format!("createcomputer={ou}"));
                }
                run_as(join, by, "join the domain")?;
                self.net_keytab()?;
                self.add_names(by);
                Ok(())
            }
            Tool::Adcli => {
                let mut join = self.adcli("join");
                join.arg(format!("--host-keytab={}", self.keytab.display()));
                join.arg(format!("--host-fqdn={}", member.host));
                join.arg(format!("--computer-name={}", member.computer));
                join.args(["--service-name=cifs", "--service-name=host", "--os-name=Frevo"]);
                if let Some(ou) = ou {
                    join.arg(format!("--domain-ou={}", distinguished(ou, &member.realm)));
                }
                for name in &member.names {
                    join.arg(format!("--add-service-principal=cifs/{name}"));
                }
                run_as(join, by, "join the domain")
            }
        }
    }

    /// Gives the account the names of a cluster's nodes that it lacks: `net` refuses those that it has. A name
    /// that the domain refuses is told. The account has a new password by now, so that its keys are to be kept.
    fn add_names(&self, by: &Credentials<'_>) {
        let member = self.member;
        if member.names.is_empty() {
            return;
        }
        let mut list = self.net(&["ads", "setspn", "list", &member.computer]);
        list.args(["-U", by.user]).env("PASSWD", &**by.password).stdin(Stdio::null());
        let listed = list.output().map(|output| output.stdout).unwrap_or_default();
        let listed = String::from_utf8_lossy(&listed).to_lowercase();
        for name in &member.names {
            let service = format!("cifs/{name}");
            if listed.lines().any(|line| line.trim() == service) {
                continue;
            }
            let mut add = self.net(&["ads", "setspn", "add", &member.computer]);
            add.arg(&service);
            let what = format!("give the account the name {service}");
            if let Err(failure) = run_as(add, by, &what) {
                tell_failure(&failure);
            }
        }
    }

    /// Removes the machine account.
    pub(super) fn leave(&self, by: &Credentials<'_>) -> Done {
        let call = match self.member.tool {
            Tool::Net => self.net(&["ads", "leave"]),
            Tool::Adcli => {
                let mut call = self.adcli("delete-computer");
                call.arg(&self.member.computer);
                call
            }
        };
        run_as(call, by, "leave the domain")
    }

    /// Has `net` keep the password that the controller has taken: winbind asks with it. `adcli` keeps none.
    pub(super) fn keep(&self, password: &str) -> Done {
        // Nodes of a cluster have the keys of its account, and their winbind has accounts of their own.
        if self.member.tool == Tool::Adcli || self.member.cluster.is_some() {
            return Ok(());
        }
        // A file of an earlier version may lack the ranges without which winbind lets no user of the
        // domain log on.
        self.write_smb_conf()?;
        let secrets = NetSecrets::of(&self.dir());
        secrets.copy()?;
        let keep = || {
            let what = "keep the password of the machine account for winbind";
            run(self.net(&["changesecretpw", "--force", "--stdin"]), Some(password), what)
        };
        // It fails where its last call was interrupted.
        keep().or_else(|_| {
            secrets.restore(self.state_dir)?;
            keep()
        })
    }

    /// True if `net` has begun a change by itself and was interrupted, as an earlier version had it do.
    pub(super) fn has_begun(&self) -> bool {
        let told = self.net(&["primarytrust", "dumpinfo"]).stdin(Stdio::null()).output();
        let told = told.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&told).lines().any(|line| {
            line.trim()
                .split_once(':')
                .is_some_and(|(name, value)| name.trim() == "next_change" && value.trim() == "*")
        })
    }

    fn dir(&self) -> PathBuf {
        Membership::dir(self.state_dir, &self.member.realm)
    }

    /// Writes the keys of the account, beside older ones.
    pub(super) fn net_keytab(&self) -> Done {
        for call in [&["ads", "keytab", "create"][..], &["ads", "keytab", "add", "cifs"]] {
            let mut call = self.net(call);
            call.arg("--machine-pass");
            run(call, None, "write the keytab")?;
        }
        Ok(())
    }

    /// Ends a change of the password that was interrupted: `net` has kept the new one, and tries both with
    /// the controller that has the role of PDC. While it is away, or DNS has no record of it, another
    /// controller does.
    pub(super) fn finish_change_of_net(&self) -> Done {
        let what = "change the password of the machine account";
        let finish = |controller: Option<&str>| {
            let mut call = self.net(&["rpc", "changetrustpw"]);
            if let Some(controller) = controller {
                call.args(["--server", controller]);
            }
            run(call, None, what)
        };
        finish(None).or_else(|failure| {
            let known = match &self.member.controller {
                Some(_) => Vec::new(),
                None => {
                    kdc::find(&self.member.realm, None).map(|found| found.all).unwrap_or_default()
                }
            };
            let is_done = known.iter().any(|controller| finish(Some(controller.host())).is_ok());
            if is_done { Ok(()) } else { Err(failure) }
        })
    }

    fn net(&self, words: &[&str]) -> Command {
        let mut command = command(Tool::Net.name());
        command.args(words).arg("--configfile").arg(self.dir().join(SMB_CONF));
        command.arg(format!("--option=dedicated keytab file={}", self.keytab.display()));
        if let Some(controller) = &self.member.controller {
            command.args(["--server", controller]);
        }
        command
    }

    fn adcli(&self, word: &str) -> Command {
        let mut command = command(Tool::Adcli.name());
        command.arg(word).arg(format!("--domain={}", self.member.realm.to_lowercase()));
        if let Some(controller) = &self.member.controller {
            command.arg(format!("--domain-controller={controller}"));
        }
        command
    }

    pub(super) fn write_smb_conf(&self) -> Done {
        let (dir, member) = (self.dir(), self.member);
        let private = dir.join("private");
        crate::state::make_dir(&private)?;
        let directories = ["private dir", "state directory", "cache directory", "lock directory"];
        let directories = directories.map(|key| format!("    {key} = {}\n", private.display()));
        let text = format!(
            "# Made by frevo domain join.\n[global]\n    security = ads\n    realm = {}\n    workgroup \
             = {}\n    netbios name = {}\n    kerberos method = dedicated keytab\n    dedicated \
             keytab file = {}\n    machine password timeout = 0\n    log file = {}\n{}{}",
            member.realm,
            member.domain,
            member.computer,
            keytab_in(self.state_dir).display(),
            private.join("log").display(),
            directories.concat(),
            id_ranges(&member.domain, self.idmaps),
        );
        crate::secret_file::replace(&dir.join(SMB_CONF), &text)
    }
}

/// Numbers of a range, where no `[[idmap]]` says which.
const NUMBERS: u32 = 1_000_000;

/// The ranges of numbers for winbind, which lets nobody log on without them: those of the only
/// `[[idmap]]` for the domain, and others that no section has.
fn id_ranges(domain: &str, idmaps: &[IdmapSection]) -> String {
    // The block is the first two million numbers, from a multiple of a million on, that no section
    // has. The first million is for users of hosts.
    let block =
        |block: u32| Numbers { first: block * NUMBERS, last: block * NUMBERS + NUMBERS - 1 };
    let is_free = |numbers: Numbers| {
        let taken = |idmap: &IdmapSection| {
            let range = idmap.range.get_ref();
            range.first <= numbers.last && numbers.first <= range.last
        };
        !idmaps.iter().any(taken)
    };
    let blocks = 1..u32::MAX / NUMBERS - 1;
    let free = blocks.clone().find(|at| is_free(block(*at)) && is_free(block(*at + 1)));
    let others = block(free.unwrap_or(blocks.start));
    let own = match idmaps {
        [only] => (*only.range.get_ref(), only.base_rid),
        _ => (block(others.first / NUMBERS + 1), 0),
    };
    let (Numbers { first, last }, base_rid) = own;
    let base = match base_rid {
        0 => String::new(),
        rid => format!("    idmap config {domain} : base_rid = {rid}\n"),
    };
    format!(
        "    idmap config * : backend = tdb\n    idmap config * : range = {}-{}\n    idmap config \
         {domain} : backend = rid\n    idmap config {domain} : range = {first}-{last}\n{base}",
        others.first, others.last
    )
}

/// The distinguished name of `Servers/Files` in a domain.
fn distinguished(ou: &str, realm: &str) -> String {
    let units = ou.rsplit('/').map(|unit| format!("OU={unit}"));
    let domain = realm.split('.').map(|part| format!("DC={}", part.to_lowercase()));
    units.chain(domain).collect::<Vec<_>>().join(",")
}

fn command(name: &str) -> Command {
    let path = installed(name).unwrap_or_else(|| PathBuf::from(name));
    let mut command = Command::new(path);
    command.env("PATH", search_path()).env("LC_ALL", "C").env_remove("PASSWD");
    command
}

/// Runs a call as a user of the domain. No other user of this host sees the password: it goes
/// through standard input or the environment.
fn run_as(mut command: Command, by: &Credentials<'_>, what: &str) -> Done {
    command.args(["-U", by.user]);
    if command.get_program().to_string_lossy().ends_with(Tool::Adcli.name()) {
        command.arg("--stdin-password");
        return run(command, Some(by.password), what);
    }
    command.env("PASSWD", &**by.password);
    run(command, None, what)
}

/// Runs a call. Its own words are the reason when it fails.
fn run(mut command: Command, input: Option<&str>, what: &str) -> Done {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |error| Failure::failed(format!("cannot run {program}"))(error);
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
        // The write fails if the program ends without reading its input. Then its output tells the
        // reason.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let text = format!("cannot {what}: {program} says: {}", reason(&said));
    Err(Failure::new(Exit::Failed, text))
}

/// The last lines of what a program said, which have the reason.
fn reason(said: &str) -> String {
    const LINES: usize = 3;
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
    match last.join("; ") {
        text if text.is_empty() => String::from("nothing"),
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_named_from_the_inside() {
        assert_eq!(distinguished("Servers/Files", "A.Test"), "OU=Files,OU=Servers,DC=a,DC=test");
    }

    #[test]
    fn winbind_has_ranges_that_fit() {
        let of = |text: &str| {
            let config = frevo_config::Config::parse(text).unwrap();
            id_ranges("A", &config.idmaps)
        };
        let default = of("");
        for line in
            ["* : range = 1000000-1999999", "A : backend = rid", "A : range = 2000000-2999999"]
        {
            assert!(default.contains(&format!("    idmap config {line}\n")), "{default}");
        }
        let one = of("[[idmap]]\ndomain_sid = \"S-1-5-21-1-2-3\"\nrange = \"100000-1199999\"\n\
                      base_rid = 1000");
        for line in
            ["* : range = 2000000-2999999", "A : range = 100000-1199999", "A : base_rid = 1000"]
        {
            assert!(one.contains(&format!("    idmap config {line}\n")), "{one}");
        }
        let end =
            of("[[idmap]]\ndomain_sid = \"S-1-5-21-1-2-3\"\nrange = \"4000000000-4294967294\"");
        assert!(end.contains("* : range = 1000000-1999999"), "{end}");
    }

    #[test]
    fn the_reason_is_what_was_said_last() {
        assert_eq!(reason("a\n\n b \nc\nd\n"), "b; c; d");
        assert_eq!(reason("\n"), "nothing");
    }

    #[test]
    fn a_program_that_fails_tells_why() {
        let mut fails = command("sh");
        fails.args(["-c", "echo one; echo two >&2; exit 3"]);
        let failure = run(fails, None, "do it").unwrap_err().to_string();
        assert!(
            failure.starts_with("cannot do it: ") && failure.ends_with("one; two"),
            "{failure}"
        );
        let mut reads = command("sh");
        reads.args(["-c", "read x && [ \"$x\" = word ] && [ \"$LC_ALL\" = C ]"]);
        run(reads, Some("word\n"), "do it").unwrap();
    }
}
