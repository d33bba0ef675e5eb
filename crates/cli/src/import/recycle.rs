//! Converts the module `recycle` of a share.

use std::fmt::Write as _;

use frevo_config::Config;

use super::report::{Report, Weight};
use super::share::Share;
use super::toml_text::{line, quoted};
use super::words::list;

/// Words of `recycle:repository` behind the folder that mean a bin for each user.
const USERS: [&str; 4] = ["%U", "%u", "%{U}", "%{u}"];

/// Writes `recycle`, and reports what it does otherwise than Samba.
pub(super) fn write(share: &Share<'_>, report: &mut Report, toml: &mut String) {
    let Some(module) = share.parameter("vfs objects").filter(|_| share.loads("recycle")) else {
        return;
    };
    let section = &share.section.name;
    if share.is_read_only() && share.value("write list").is_none_or(str::is_empty) {
        let why = "recycle: nobody may delete in the share";
        report.parameter(Weight::Harmless, section, module, why);
        return;
    }
    if share.loads("fruit") && share.truth("fruit:timemachine") == Some(true) {
        let why = "recycle: backups of macOS cannot have a recycle bin";
        report.parameter(Weight::LeftOut, section, module, why);
        return;
    }
    // Samba never removes recycled files, so `keep_days` is 0.
    let mut table = String::from("keep_days = 0");
    let repository = share.parameter("recycle:repository");
    let path = repository.map_or(".recycle", |parameter| &*parameter.value);
    let path = within(share, path);
    let (folder, user) = path.split_once('/').unwrap_or((path, ""));
    if !(user.is_empty() || USERS.contains(&user)) || !is_accepted(share, folder) {
        let why = "recycle: the bin must be one folder in the share, such as .recycle/%U; \
                   deleted files are gone";
        report.parameter(Weight::LeftOut, section, repository.unwrap_or(module), why);
        return;
    }
    if user.is_empty() {
        let why = format!(
            "recycle: each user has a bin ({folder}/USER); files that are in {folder} now are seen \
             by nobody, move them"
        );
        report.parameter(Weight::Stricter, section, repository.unwrap_or(module), &why);
    }
    if folder != ".recycle" {
        let _ = write!(table, ", folder = {}", quoted(folder));
    }
    if let Some(bytes) = share.value("recycle:maxsize").and_then(|v| v.parse::<u64>().ok())
        && bytes > 0
    {
        let _ = write!(table, ", max_file_size = {bytes}");
    }
    // Without `recycle:versions = yes` Samba replaces an older recycled file of the same name, so
    // Frevo keeps no versions either.
    if share.truth("recycle:versions") != Some(true) {
        table.push_str(", versions = false");
    }
    let exclude = excluded(share, report);
    if !exclude.is_empty() {
        let _ = write!(table, ", exclude = [{}]", exclude.join(", "));
    }
    line(toml, "recycle", &format!("{{ {table} }}"));
}

/// A path relative to the share, if it is one in it.
fn within<'a>(share: &Share<'_>, path: &'a str) -> &'a str {
    let folder = share.value("path").unwrap_or_default().trim_end_matches('/');
    let inner = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
    inner.filter(|_| !folder.is_empty()).unwrap_or(path).trim_end_matches('/')
}

/// True for a folder that a share with these names out of reach can have as its bin.
fn is_accepted(share: &Share<'_>, folder: &str) -> bool {
    let veto = share.value("veto files").unwrap_or_default().split('/');
    let veto: Vec<String> = veto.filter(|name| !name.is_empty()).map(quoted).collect();
    let (folder, veto) = (quoted(folder), veto.join(", "));
    let text = format!(
        "[[share]]\nname = \"a\"\npath = \"/a\"\nrecycle = {{ folder = {folder} }}\nveto = [{veto}]\n"
    );
    Config::parse(&text).is_ok()
}

/// The patterns of files and folders that are deleted for good, quoted.
fn excluded(share: &Share<'_>, report: &mut Report) -> Vec<String> {
    let mut patterns = Vec::new();
    for option in ["recycle:exclude", "recycle:exclude_dir"] {
        let Some(parameter) = share.parameter(option) else { continue };
        for word in list(&parameter.value.replace('|', " ")) {
            let name = word.trim_matches('/');
            if name.contains('/') {
                let why =
                    format!("recycle: {word} is a path; a pattern is one name, in any folder");
                report.parameter(Weight::LeftOut, &share.section.name, parameter, &why);
            } else if !name.is_empty() {
                patterns.push(quoted(name));
            }
        }
    }
    patterns
}
