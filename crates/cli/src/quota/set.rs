//! `frevo quota set`

use std::io;
use std::str::FromStr;

use clap::{ArgGroup, Args};
use frevo_posix::quota::host::{HostLimits, Subject, Upkeep};

use super::{Configured, OnDisk, subject};
use crate::changes::Telling;
use crate::console::tell;
use crate::exit::{Done, Exit, Failure};
use crate::plural::counted;
use crate::remote::output::{human, parse_size};

/// `frevo quota set`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("whose").required(true))]
#[command(group = ArgGroup::new("limits").required(true).multiple(true))]
pub(super) struct Set {
    /// The share
    name: String,
    /// A user of the host, by name or number
    #[arg(long, value_name = "NAME", group = "whose")]
    user: Option<String>,
    /// A group of the host, by name or number
    #[arg(long, value_name = "NAME", group = "whose")]
    group: Option<String>,
    /// The folder of the share, whoever owns the files in it
    #[arg(long, group = "whose")]
    share: bool,
    /// Bytes that are not exceeded
    #[arg(long, value_name = "SIZE", group = "limits", value_parser = space)]
    space: Option<Limit>,
    /// Bytes beyond which the host's grace time runs
    #[arg(long, value_name = "SIZE", group = "limits", value_parser = space)]
    soft_space: Option<Limit>,
    /// Count of files that is not exceeded
    #[arg(long, value_name = "COUNT", group = "limits", value_parser = files)]
    files: Option<Limit>,
    /// Count of files beyond which the host's grace time runs
    #[arg(long, value_name = "COUNT", group = "limits", value_parser = files)]
    soft_files: Option<Limit>,
    #[command(flatten)]
    telling: Telling,
}

/// A limit on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    None,
    At(u64),
}

fn space(text: &str) -> Result<Limit, String> {
    if text == "none" { Ok(Limit::None) } else { at_least_one(parse_size(text)?) }
}

fn files(text: &str) -> Result<Limit, String> {
    let count = || u64::from_str(text).map_err(|_| format!("{text} is not a number, and not none"));
    if text == "none" { Ok(Limit::None) } else { at_least_one(count()?) }
}

/// The kernel has 0 for no limit.
fn at_least_one(limit: u64) -> Result<Limit, String> {
    match limit {
        0 => Err("a limit is at least 1; none takes it away".to_owned()),
        limit => Ok(Limit::At(limit)),
    }
}

pub(super) fn run(set: &Set, configured: &Configured) -> Done {
    let on_disk = OnDisk::open(configured.find(&set.name)?)?;
    match (&set.user, &set.group) {
        (Some(name), _) => set_of(set, &on_disk, Subject::User, name),
        (None, Some(name)) => set_of(set, &on_disk, Subject::Group, name),
        (None, None) if on_disk.quotas.is_subvolume().unwrap_or(false) => {
            set_of_subvolume(set, &on_disk)
        }
        (None, None) => set_of_project(set, &on_disk),
    }
}

/// Sets the limits of a user or a group.
fn set_of(set: &Set, on_disk: &OnDisk, subject: Subject, name: &str) -> Done {
    let (kind, option) = match subject {
        Subject::User => ("users", "usrquota"),
        _ => ("groups", "grpquota"),
    };
    check_upkeep(on_disk, subject, kind, option)?;
    let number = subject::number(subject, name)?;
    let before = on_disk.quotas.of(subject, number).map_err(failed(on_disk))?;
    let limits = set.changed(before.limits);
    if set.telling.is_dry_run() {
        let both = Limits { before: before.limits, now: limits };
        return set.told(on_disk, name, before.space, &both);
    }
    on_disk.quotas.set(subject, number, limits).map_err(failed(on_disk))?;
    // The kernel rounds limits.
    let now = on_disk.quotas.of(subject, number).map_err(failed(on_disk))?;
    set.told(on_disk, name, now.space, &Limits { before: before.limits, now: now.limits })
}

/// Sets the limit of a folder by its project, which it gets if it has none.
fn set_of_project(set: &Set, on_disk: &OnDisk) -> Done {
    check_upkeep(on_disk, Subject::Project, "folders", "prjquota (pquota on XFS)")?;
    let quotas = &on_disk.quotas;
    let project = match quotas.of_folder().map_err(failed(on_disk))? {
        Some(quota) => quota.id,
        None => quotas.free_project().map_err(failed(on_disk))?,
    };
    let before = quotas.of(Subject::Project, project).map_err(failed(on_disk))?;
    let limits = set.changed(before.limits);
    if set.telling.is_dry_run() {
        let both = Limits { before: before.limits, now: limits };
        return set.told(on_disk, "the share", before.space, &both);
    }
    quotas.set(Subject::Project, project, limits).map_err(failed(on_disk))?;
    // Files that were brought in from outside, or left by a call that was interrupted, get the number, too.
    let folder = on_disk.folder.display();
    let tried = format!("cannot put {folder} into a project");
    let put = quotas.put_into_project(project).map_err(Failure::failed(tried))?;
    let now = quotas.of(Subject::Project, project).map_err(failed(on_disk))?;
    tell(format_args!("{} in {folder} belong to project {project}", counted(put.count, "file")));
    if put.others > 0 {
        let folders = counted(put.others, "folder");
        tell(format_args!("{folders} with a project of their own are left out"));
    }
    match put.why {
        None => {
            let both = Limits { before: before.limits, now: now.limits };
            set.told(on_disk, "the share", now.space, &both)
        }
        Some(why) => Err(Failure::new(
            Exit::Failed,
            format!(
                "the limit holds, but {} in {folder} cannot be counted for it ({why}); mend that, and repeat \
                 the command",
                counted(put.failed, "file")
            ),
        )),
    }
}

fn set_of_subvolume(set: &Set, on_disk: &OnDisk) -> Done {
    let folder = on_disk.folder.display();
    if set.soft_space.is_some() || set.files.is_some() || set.soft_files.is_some() {
        let text = "a subvolume of btrfs has one limit only, that of --space";
        return Err(Failure::new(Exit::Usage, text));
    }
    let Some(before) = on_disk.quotas.of_folder().map_err(failed(on_disk))? else {
        let text =
            format!("quotas of {folder} are off; switch them on: btrfs quota enable {folder}");
        return Err(Failure::new(Exit::Failed, text));
    };
    let limits = set.changed(before.limits);
    if limits != before.limits && !set.telling.is_dry_run() {
        on_disk.quotas.limit_subvolume(limits.hard_space).map_err(failed(on_disk))?;
    }
    set.told(on_disk, "the share", before.space, &Limits { before: before.limits, now: limits })
}

/// Fails where the kernel keeps no quotas of a kind.
fn check_upkeep(on_disk: &OnDisk, subject: Subject, kind: &str, option: &str) -> Done {
    let folder = on_disk.folder.display();
    match on_disk.quotas.upkeep(subject).map_err(failed(on_disk))? {
        None if on_disk.quotas.is_subvolume().unwrap_or(false) => Err(Failure::new(
            Exit::Failed,
            format!(
                "{folder} is on btrfs, which keeps no quotas of {kind}; limit the share: frevo quota set {} \
                 --share --space SIZE",
                on_disk.name
            ),
        )),
        None => Err(Failure::new(
            Exit::Failed,
            format!(
                "the file system of {folder} keeps no quotas of {kind}; mount it with {option}. An ext4 that \
                 was made without quotas needs them first, unmounted: tune2fs -O quota,project -Q \
                 usrquota,grpquota,prjquota DEVICE"
            ),
        )),
        Some(Upkeep::Counted) => {
            tell(format_args!(
                "the file system of {folder} counts what {kind} have, and enforces no limit; mount it with {option}"
            ));
            Ok(())
        }
        Some(Upkeep::Enforced) => Ok(()),
    }
}

fn failed(on_disk: &OnDisk) -> impl Fn(io::Error) -> Failure {
    move |error| {
        let folder = on_disk.folder.display();
        let text = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                format!("only root sets the quotas of {folder}; use sudo")
            }
            _ => format!("cannot set the quotas of {folder}: {error}"),
        };
        Failure::new(Exit::Failed, text)
    }
}

/// Limits before and after a change.
struct Limits {
    before: HostLimits,
    now: HostLimits,
}

impl Set {
    /// Tells what holds now.
    fn told(&self, on_disk: &OnDisk, whose: &str, has: u64, limits: &Limits) -> Done {
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "no limit".to_owned(), human);
        let now = limits.now;
        let over = now.hard_space.is_some_and(|limit| has > limit);
        let line = format!(
            "{}: {whose} has {} of {}{}",
            on_disk.name,
            human(has),
            size(now.hard_space),
            if over { "; nothing can be added until less is used" } else { "" }
        );
        let facts = serde_json::json!({
            "share": on_disk.name, "whose": whose, "used": has,
            "space": now.hard_space, "soft_space": now.soft_space,
            "files": now.hard_files, "soft_files": now.soft_files,
        });
        self.telling.finish(limits.before != now, facts, &line)
    }

    /// Returns `limits` with those that were named.
    fn changed(&self, limits: HostLimits) -> HostLimits {
        let changed = |named: Option<Limit>, before| match named {
            None => before,
            Some(Limit::None) => None,
            Some(Limit::At(limit)) => Some(limit),
        };
        HostLimits {
            soft_space: changed(self.soft_space, limits.soft_space),
            hard_space: changed(self.space, limits.hard_space),
            soft_files: changed(self.soft_files, limits.soft_files),
            hard_files: changed(self.files, limits.hard_files),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_not_named_stay() {
        assert_eq!(space("1.5k"), Ok(Limit::At(1536)));
        assert_eq!(space("none"), Ok(Limit::None));
        assert!(space("0").is_err() && space("x").is_err() && files("1k").is_err());
        let set = Set {
            name: "a".to_owned(),
            user: None,
            group: None,
            share: true,
            space: Some(Limit::At(9)),
            soft_space: Some(Limit::None),
            files: None,
            soft_files: None,
            telling: Telling::default(),
        };
        let before = HostLimits {
            soft_space: Some(1),
            hard_space: Some(2),
            soft_files: None,
            hard_files: Some(4),
        };
        let after = HostLimits { soft_space: None, hard_space: Some(9), ..before };
        assert_eq!(set.changed(before), after);
    }
}
