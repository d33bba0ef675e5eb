//! Converts `vfs objects` of a share, and the options of the modules.

use std::path::{Path, PathBuf};

use frevo_config::{Config, Size};

use super::conversion::Conversion;
use super::modules;
use super::options::Effect;
use super::recycle;
use super::report::{Report, Weight};
use super::share::{Reason, Share};
use super::smb_conf::{Parameter, Section};
use super::toml_text::{line, quoted};
use super::words::{list, truth};

/// Modules that write a log of what clients do.
const AUDITS: [&str; 3] = ["full_audit", "audit", "extd_audit"];

/// True for a section whose share loads a module that logs.
pub(super) fn is_audited(section: &Section, conversion: &Conversion<'_>) -> bool {
    AUDITS.iter().any(|module| conversion.loads(Some(section), module))
}

/// Reasons of modules and their options.
pub(super) fn reasons_against<'a>(share: &Share<'a>, reasons: &mut Vec<Reason<'a>>) {
    if let Some(parameter) = share.parameter("vfs objects") {
        for word in &share.modules {
            match modules::find(word) {
                Some(module) if module.effect != Effect::Opens => {}
                Some(module) => reasons.push(Reason::of_module(word, parameter, module.why)),
                None => {
                    let why = "Frevo does not know the module, and whether it restricts users";
                    reasons.push(Reason::of_module(word, parameter, why));
                }
            }
        }
    }
    for parameter in options_of(share) {
        let loaded = |module: &str| share.loads(module);
        let (effect, why) = modules::option(&parameter.name, &parameter.value, loaded);
        // If the module itself restricts access, it was reported as a whole, so its options are not
        // reported again.
        let prefix = parameter.name.split(':').next().unwrap_or_default();
        let told = modules::find(prefix).is_some_and(|module| module.effect == Effect::Opens);
        let is_of_share = share.section.parameters.contains(parameter);
        if effect == Effect::Opens && !told && (is_of_share || modules::is_known(&parameter.name)) {
            reasons.push(Reason::of(parameter, why));
        }
    }
}

/// The options of modules that count for a share.
fn options_of<'a>(share: &Share<'a>) -> impl Iterator<Item = &'a Parameter> {
    let (section, global) = (share.section, share.global);
    let all = section.parameters.iter().chain(&global.parameters);
    let counts = move |p: &&Parameter| {
        section.parameter(&p.name).or_else(|| global.parameter(&p.name)) == Some(*p)
    };
    all.filter(|parameter| parameter.name.contains(':')).filter(counts)
}

/// Writes the keys of the modules, and reports those without any.
pub(super) fn write(share: &Share<'_>, report: &mut Report, toml: &mut String) {
    write_snapshots(share, report, toml);
    write_time_machine(share, report, toml);
    write_spotlight(share, report, toml);
    recycle::write(share, report, toml);
    write_audit(share, toml);
    if share.loads("readonly")
        && let Some(parameter) = share.parameter("readonly:period")
    {
        let why = "the share is read-only at all times";
        report.parameter(Weight::Stricter, &share.section.name, parameter, why);
    }
    // Only the line `vfs objects` of the share is reported here; the one of [global] is reported
    // once, with that section.
    if let Some(parameter) = share.section.parameter("vfs objects") {
        report_modules(&share.section.name, parameter, report);
        tell_defaults(&share.section.name, parameter, &|name| share.parameter(name), report);
    }
}

/// Reports the modules in a value of `vfs objects` that restrict nobody.
pub(super) fn report_modules(section: &str, parameter: &Parameter, report: &mut Report) {
    for word in list(&parameter.value) {
        let module = modules::find(&word).filter(|module| module.effect != Effect::Opens);
        if let Some((module, weight)) = module.and_then(|m| Weight::of(m.effect).map(|w| (m, w))) {
            let why = format!("{}: {}", module.name, module.why);
            report.parameter(weight, section, parameter, &why);
        }
    }
}

/// Defaults of vfs_fruit that store what Frevo does not read, with what is lost.
const FRUIT_DEFAULTS: [(&str, &str); 3] = [
    (
        "metadata",
        "netatalk, Finder information in org.netatalk.Metadata, which Frevo does not read",
    ),
    ("resource", "file, resource forks in files ._NAME, which become ordinary files"),
    ("encoding", "private, and names with such characters look otherwise with Frevo"),
];

/// Finds the option of a name.
type Options<'a> = dyn Fn(&str) -> Option<&'a Parameter> + 'a;

/// Tells of modules in `vfs objects` of a section what their defaults mean, because Frevo does not do
/// the same.
pub(super) fn tell_defaults<'a>(
    section: &str,
    objects: &Parameter,
    options: &Options<'a>,
    report: &mut Report,
) {
    let words = list(&objects.value);
    let loads = |module: &str| {
        words.iter().any(|word| {
            word.split(':').next().is_some_and(|name| name.eq_ignore_ascii_case(module))
        })
    };
    if loads("fruit") {
        tell_defaults_of_fruit(section, options, report);
    }
    if loads("acl_xattr") {
        tell_place_of_lists(section, options, report);
    }
}

/// Tells what is lost by options of vfs_fruit that are not set.
fn tell_defaults_of_fruit<'a>(section: &str, options: &Options<'a>, report: &mut Report) {
    for (name, what) in FRUIT_DEFAULTS {
        let option = format!("fruit:{name}");
        if options(&option).is_none() {
            let advice = match name {
                "encoding" => "rename them",
                _ => {
                    "before you move, set it to stream in Samba and copy such files anew from a Mac"
                }
            };
            let what = format!("{option} is not set, which means {what}; {advice}");
            report.note(Weight::Stricter, section, &what);
        }
    }
}

/// Tells where access lists go, where Samba keeps them, too.
fn tell_place_of_lists<'a>(section: &str, options: &Options<'a>, report: &mut Report) {
    let what = "lists in security.NTACL are obeyed; new ones go there, where Samba finds them again, if \
                Frevo has CAP_SYS_ADMIN (the unit for systemd has it with frevo-access-lists.conf of \
                its examples), else to user.NTACL, which Samba does not obey: see from-samba.md before you \
                return";
    report.note(Weight::LeftOut, section, what);
    let name = "acl_xattr:security_acl_name";
    if let Some(parameter) = options(name).filter(|p| p.value.eq_ignore_ascii_case("user.NTACL")) {
        let why = "lists there are obeyed for files without a list in security.NTACL; see from-samba.md \
                   before you return to Samba";
        report.parameter(Weight::LeftOut, section, parameter, why);
    }
}

fn write_time_machine(share: &Share<'_>, report: &mut Report, toml: &mut String) {
    if !share.loads("fruit") {
        return;
    }
    if let Some(parameter) = share.section.parameter("fruit:model") {
        let why = "the model is one for the whole server; see model in [server]";
        report.parameter(Weight::LeftOut, &share.section.name, parameter, why);
    }
    if share.truth("fruit:timemachine") != Some(true) {
        return;
    }
    if !share.is_written() {
        if let Some(parameter) = share.parameter("fruit:timemachine") {
            let why = "nobody may write to the share";
            report.parameter(Weight::LeftOut, &share.section.name, parameter, why);
        }
        return;
    }
    line(toml, "time_machine", "true");
    if let Some(parameter) = share.parameter("fruit:timemachinemaxsize") {
        match parameter.value.parse::<Size>() {
            Ok(_) => line(toml, "time_machine_max_size", &quoted(&parameter.value)),
            Err(why) => {
                report.parameter(Weight::LeftOut, &share.section.name, parameter, &why);
            }
        }
    }
}

/// Samba searches in the index of another program; the share gets one of its own.
fn write_spotlight(share: &Share<'_>, report: &mut Report, toml: &mut String) {
    if share.truth("spotlight") != Some(true) {
        return;
    }
    if share.path().contains("{user}") {
        if let Some(parameter) = share.parameter("spotlight") {
            let why = "a share with a folder for each user has no index";
            report.parameter(Weight::LeftOut, &share.section.name, parameter, why);
        }
        return;
    }
    line(toml, "index", "true");
    line(toml, "spotlight", "true");
}

/// Operations of Samba's, by the beginnings of their names, and Frevo's.
const OPERATIONS: &[(&str, &[&str])] = &[
    ("open", &["open", "create_file"]),
    ("create", &["mkdir", "mknod", "symlink", "link", "create_file"]),
    ("write", &["write", "pwrite", "ftruncate", "fallocate", "recvfile", "offload_write"]),
    ("rename", &["rename"]),
    ("delete", &["unlink", "rmdir"]),
    (
        "attributes",
        &[
            "fntimes",
            "ntimes",
            "utime",
            "fsetxattr",
            "setxattr",
            "fremovexattr",
            "removexattr",
            "fset_dos",
            "set_dos",
            "set_compression",
        ],
    ),
    ("acl", &["fchmod", "chmod", "fchown", "chown", "lchown", "fset_nt_acl", "sys_acl"]),
];

fn write_audit(share: &Share<'_>, toml: &mut String) {
    if !AUDITS.iter().any(|module| share.loads(module)) {
        return;
    }
    // Without its list `success` the module full_audit records nothing. The older audit modules
    // have no list.
    let words = share
        .loads("full_audit")
        .then(|| share.value("full_audit:success").map(list).unwrap_or_default());
    let is_said = |starts: &[&str]| match &words {
        // The older audit modules (`words` is None) have no list and record everything.
        None => true,
        Some(words) => words.iter().any(|word| {
            let word = word.to_ascii_lowercase();
            word == "all" || starts.iter().any(|start| word.starts_with(start))
        }),
    };
    let said = OPERATIONS.iter().filter(|(_, starts)| is_said(starts));
    let said: Vec<String> = said.map(|(operation, _)| quoted(operation)).collect();
    line(toml, "audit", &format!("[{}]", said.join(", ")));
}

fn write_snapshots(share: &Share<'_>, report: &mut Report, toml: &mut String) {
    let (path, culprit) = if share.loads("shadow_copy2") {
        let (path, culprit) = shadow_copy2(share);
        (path, culprit.or_else(|| share.parameter("vfs objects")))
    } else if share.loads("snapper") {
        (Some(String::from(".snapshots/%N/snapshot")), None)
    } else if share.loads("shadow_copy") {
        (Some(String::from(GMT)), None)
    } else {
        return;
    };
    match (path.filter(|path| is_snapshot_path(path)), culprit) {
        (Some(path), _) => line(toml, "snapshots", &quoted(&path)),
        (None, Some(parameter)) => {
            let why = match &*parameter.name {
                "shadow:localtime" => {
                    "times in names of snapshots are UTC: let the program that makes snapshots name them \
                     so (TZ=UTC), then write snapshots; until then there are no previous versions"
                }
                _ => "previous versions are not found in this way; see snapshots",
            };
            report.parameter(Weight::LeftOut, &share.section.name, parameter, why);
        }
        (None, None) => {}
    }
}

/// The names of snapshots that smbd looks for.
const GMT: &str = "@GMT-%Y.%m.%d-%H.%M.%S";

/// The place of snapshots that shadow_copy2 looks at, and the parameter that has no equal.
fn shadow_copy2<'a>(share: &Share<'a>) -> (Option<String>, Option<&'a Parameter>) {
    for (name, harmless) in [("shadow:localtime", false), ("shadow:sscanf", false)] {
        let parameter = share.parameter(name).filter(|p| truth(&p.value) != Some(harmless));
        if parameter.is_some() {
            return (None, parameter);
        }
    }
    let set = |name: &str| share.parameter(name).filter(|p| !p.value.is_empty());
    if let Some(parameter) = set("shadow:snapprefix").or_else(|| set("shadow:snapsharepath")) {
        return (None, Some(parameter));
    }
    let format = set("shadow:format");
    let snapdir = set("shadow:snapdir").map_or(".snapshots", |p| &*p.value);
    let pattern = format.map_or(GMT, |p| &*p.value);
    // A snapshot contains the whole file system, of which the share may be a part.
    let base = set("shadow:basedir").or_else(|| set("shadow:mountpoint"));
    let path = Path::new(share.value("path").unwrap_or_default());
    let (folder, part) = match base.map(|p| (p, Path::new(&p.value))) {
        None => (PathBuf::from(snapdir), PathBuf::new()),
        Some((parameter, base)) => match path.strip_prefix(base) {
            Ok(part) if part.as_os_str().is_empty() => (PathBuf::from(snapdir), PathBuf::new()),
            Ok(part) => (base.join(snapdir), part.to_owned()),
            Err(_) => return (None, Some(parameter)),
        },
    };
    let whole = folder.join(pattern).join(part);
    let whole = whole.to_string_lossy().trim_end_matches('/').to_owned();
    (Some(whole), format)
}

/// True for a place that `snapshots` of a share may have.
fn is_snapshot_path(path: &str) -> bool {
    let path = quoted(path);
    let text = format!("[[share]]\nname = \"a\"\npath = \"/a\"\nsnapshots = {path}\n");
    Config::parse(&text).is_ok()
}
