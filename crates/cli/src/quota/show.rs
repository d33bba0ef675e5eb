//! `frevo quota show`

use std::io;

use clap::Args;
use frevo_posix::quota::host::{HostQuota, Subject, Upkeep};
use serde_json::{Value, json};

use super::{Configured, OnDisk, subject};
use crate::console::print_text;
use crate::exit::{Done, Exit, Failure, is_json};
use crate::remote::output::human;
use crate::text_table::{Align, Table};

use Align::{Left, Right};

/// `frevo quota show`
#[derive(Debug, Args)]
pub(super) struct Show {
    /// The share; all shares if it is left out
    share: Option<String>,
    /// Only this user of the host
    #[arg(long, value_name = "NAME", conflicts_with = "group")]
    user: Option<String>,
    /// Only this group of the host
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Print one JSON object for each quota
    #[arg(long)]
    json: bool,
}

/// A quota, as it is shown.
struct Shown {
    share: String,
    /// `user`, `group` or `share`.
    kind: &'static str,
    /// Name of the user or group; empty for the share.
    name: String,
    upkeep: Option<Upkeep>,
    quota: HostQuota,
}

pub(super) fn run(show: &Show, configured: &Configured) -> Done {
    let shares = match &show.share {
        Some(name) => vec![configured.find(name)?],
        None => configured.shares.iter().collect(),
    };
    let mut shown = Vec::new();
    let mut without = Vec::new();
    for share in shares {
        let on_disk = OnDisk::open(share)?;
        let found = of_share(show, &on_disk)?;
        if found.is_empty() {
            without.push(on_disk);
        }
        shown.extend(found);
    }
    if is_json() {
        let lines = shown.iter().map(|shown| format!("{}\n", shown.object()));
        return print_text(&lines.collect::<String>());
    }
    let mut text = table(&shown);
    for on_disk in without {
        text.push_str(&without_quotas(&on_disk));
    }
    print_text(&text)
}

/// A line about a share without quotas, with its cause where that is known.
fn without_quotas(on_disk: &OnDisk) -> String {
    let OnDisk { name, folder, quotas } = on_disk;
    let folder = folder.display();
    if quotas.is_subvolume().unwrap_or(false) {
        return format!(
            "{name}: quotas of {folder} are off; switch them on: btrfs quota enable {folder}; btrfs has \
             those of shares, none of users\n"
        );
    }
    if !rustix::process::geteuid().is_root() {
        return format!("{name}: only root sees all quotas of {folder}; use sudo\n");
    }
    format!(
        "{name}: the file system of {folder} keeps no quotas, or nobody has any; mount it with usrquota, \
         grpquota or prjquota\n"
    )
}

/// Returns the quotas of a share that were asked for.
fn of_share(show: &Show, on_disk: &OnDisk) -> Result<Vec<Shown>, Failure> {
    let quotas = &on_disk.quotas;
    let failed = |error: io::Error| refused(on_disk, &error);
    let one = |subject: Subject, kind: &'static str, name: &str| {
        let upkeep = quotas.upkeep(subject).map_err(failed)?;
        let quota = quotas.of(subject, subject::number(subject, name)?).map_err(failed)?;
        Ok(vec![Shown::of(on_disk, kind, name.to_owned(), upkeep, quota)])
    };
    if let Some(name) = &show.user {
        return one(Subject::User, "user", name);
    }
    if let Some(name) = &show.group {
        return one(Subject::Group, "group", name);
    }
    let mut found = Vec::new();
    // A file system that knows no quotas of folders has none.
    if let Some(quota) = quotas.of_folder().unwrap_or_default() {
        let upkeep = match quotas.is_subvolume().map_err(failed)? {
            true => Some(Upkeep::Enforced),
            false => quotas.upkeep(Subject::Project).map_err(failed)?,
        };
        found.push(Shown::of(on_disk, "share", String::new(), upkeep, quota));
    }
    for (subject, kind) in [(Subject::User, "user"), (Subject::Group, "group")] {
        let Some(upkeep) = quotas.upkeep(subject).map_err(failed)? else { continue };
        for quota in quotas.all(subject).map_err(failed)? {
            let name = subject::name(subject, quota.id);
            found.push(Shown::of(on_disk, kind, name, Some(upkeep), quota));
        }
    }
    Ok(found)
}

/// The failure of a question to the kernel.
pub(super) fn refused(on_disk: &OnDisk, error: &io::Error) -> Failure {
    let folder = on_disk.folder.display();
    let text = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("the kernel tells only root of the quotas of {folder}; use sudo")
        }
        _ => format!("cannot read the quotas of {folder}: {error}"),
    };
    Failure::new(Exit::Failed, text)
}

impl Shown {
    fn of(
        on_disk: &OnDisk,
        kind: &'static str,
        name: String,
        upkeep: Option<Upkeep>,
        quota: HostQuota,
    ) -> Self {
        Self { share: on_disk.name.clone(), kind, name, upkeep, quota }
    }

    fn object(&self) -> Value {
        let limits = self.quota.limits;
        json!({
            "share": self.share, "kind": self.kind,
            "name": (!self.name.is_empty()).then_some(&self.name),
            "id": (self.quota.id != 0 || self.kind != "share").then_some(self.quota.id),
            "space": self.quota.space, "files": self.quota.files,
            "soft_space": limits.soft_space, "hard_space": limits.hard_space,
            "soft_files": limits.soft_files, "hard_files": limits.hard_files,
            "enforced": self.upkeep == Some(Upkeep::Enforced),
        })
    }
}

fn table(shown: &[Shown]) -> String {
    if shown.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("SHARE", Left),
        ("WHO", Left),
        ("SPACE", Right),
        ("SOFT", Right),
        ("LIMIT", Right),
        ("FILES", Right),
        ("SOFT", Right),
        ("LIMIT", Right),
        ("", Left),
    ]);
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), human);
    let count =
        |files: Option<u64>| files.map_or_else(|| "-".to_owned(), |files| files.to_string());
    for Shown { share, kind, name, upkeep, quota } in shown {
        let who = if name.is_empty() { (*kind).to_owned() } else { format!("{kind} {name}") };
        let limits = quota.limits;
        let is_limited = limits != frevo_posix::quota::host::HostLimits::default();
        let note = match upkeep {
            Some(Upkeep::Enforced) => "",
            _ if is_limited => "counted only",
            _ => "",
        };
        table.row(&[
            share.clone(),
            who,
            human(quota.space),
            size(limits.soft_space),
            size(limits.hard_space),
            quota.files.to_string(),
            count(limits.soft_files),
            count(limits.hard_files),
            note.to_owned(),
        ]);
    }
    table.lines().join("\n") + "\n"
}
