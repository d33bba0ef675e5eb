//! The options of a share for the permission bits of new files, and for DOS attributes that are such
//! bits.

use frevo_config::Mode;

use super::conversion::ShareParameters;
use super::report::{Report, Weight};
use super::smb_conf::Parameter;
use super::toml_text::line;
use super::words::truth;

/// The key of a mask, and the options of Samba for it.
struct ModeOptions {
    key: &'static str,
    mask: &'static str,
    default: u32,
    forced: &'static str,
    /// The bits that Frevo sets for clients.
    settable: u32,
}

const MODES: [ModeOptions; 2] = [
    ModeOptions {
        key: "file_mode",
        mask: "create mask",
        default: 0o744,
        forced: "force create mode",
        settable: 0o1777,
    },
    ModeOptions {
        key: "directory_mode",
        mask: "directory mask",
        default: 0o755,
        forced: "force directory mode",
        settable: 0o3777,
    },
];

/// A DOS attribute that may be a bit of the mode.
struct MappedAttribute {
    key: &'static str,
    option: &'static str,
    default: bool,
}

const MAPPED: [MappedAttribute; 4] = [
    MappedAttribute { key: "map_archive", option: "map archive", default: true },
    MappedAttribute { key: "map_system", option: "map system", default: false },
    MappedAttribute { key: "map_hidden", option: "map hidden", default: false },
    MappedAttribute { key: "map_readonly", option: "map readonly", default: true },
];

/// A share as far as these options go.
pub(super) struct ShareModes<'a> {
    pub(super) of: ShareParameters<'a>,
    /// True where access lists are stored (acl_xattr).
    pub(super) has_lists: bool,
}

/// An option with which a share cannot be used.
pub(super) struct ModeFault<'a> {
    pub(super) parameter: &'a Parameter,
    pub(super) why: &'static str,
}

impl<'a> ShareModes<'a> {
    /// True if an attribute is a bit of the mode, where attributes are not stored. `map readonly` has a third
    /// word, with which READONLY tells of the user's rights, and says nothing of the mode.
    fn maps(&self, attribute: &MappedAttribute) -> bool {
        let value = self.of.value(attribute.option);
        let is_of_rights = value.is_some_and(|value| value.eq_ignore_ascii_case("permissions"));
        !is_of_rights && value.and_then(truth).unwrap_or(attribute.default)
    }

    /// True if new files belong to the owner of their folder. None for a value that is not known.
    fn inherits_owner(&self) -> Option<bool> {
        let value = self.of.value("inherit owner").unwrap_or("no");
        let words = ["windows and unix", "unix only"];
        let is_word = words.iter().any(|word| value.eq_ignore_ascii_case(word));
        if is_word { Some(true) } else { truth(value) }
    }

    /// The options with which the share cannot be used.
    pub(super) fn faults(&self) -> Vec<ModeFault<'a>> {
        let is_no_mode = |p: &&Parameter| p.value.parse::<Mode>().is_err();
        let masks = MODES.iter().filter_map(|options| self.of.parameter(options.mask));
        let why = "the value is not permission bits";
        let mut faults: Vec<_> =
            masks.filter(is_no_mode).map(|parameter| ModeFault { parameter, why }).collect();
        let why = match self.inherits_owner() {
            None => Some("unknown value"),
            Some(true) if self.has_lists => {
                Some("with stored access lists, new files belong to the user that makes them")
            }
            Some(_) => None,
        };
        let owner = self.of.parameter("inherit owner");
        faults.extend(owner.zip(why).map(|(parameter, why)| ModeFault { parameter, why }));
        faults
    }
}

/// Writes the permission bits of new files and folders.
pub(super) fn write(share: &ShareModes<'_>, report: &mut Report, toml: &mut String) {
    let bits = |name| share.of.value(name).and_then(|value| value.parse::<Mode>().ok());
    for options in &MODES {
        let ModeOptions { key, settable, .. } = options;
        // The modes are always written, because without a mask, clients with the POSIX extensions
        // could set all bits.
        let mask = bits(options.mask).map_or(options.default, |mode| mode.0);
        line(toml, key, &format!("\"{mask:04o}\""));
        let forced = share.of.parameter(options.forced).filter(|p| !is_zero(&p.value));
        let Some(parameter) = forced else { continue };
        let mut tell =
            |why: &str| report.parameter(Weight::Stricter, &share.of.section.name, parameter, why);
        let Some(Mode(forced)) = bits(options.forced) else {
            tell(&format!("the value is not permission bits; see force_{key}"));
            continue;
        };
        if forced & settable != 0 {
            line(toml, &format!("force_{key}"), &format!("\"{:04o}\"", forced & settable));
        }
        if forced & !settable != 0 {
            tell(&format!("the bits {:04o} are never set for clients", forced & !settable));
        }
    }
    for (option, key) in
        [("inherit permissions", "inherit_modes"), ("inherit acls", "inherit_acls")]
    {
        if share.of.truth(option) == Some(true) {
            line(toml, key, "true");
        }
    }
}

/// True for permission bits that say nothing.
fn is_zero(mode: &str) -> bool {
    mode.chars().all(|digit| digit == '0')
}

/// Writes the keys that go with permission bits alone: the owner of new files, and DOS attributes that
/// are bits of the mode. In Samba they are that only where they are not stored.
pub(super) fn write_plain(share: &ShareModes<'_>, report: &mut Report, toml: &mut String) {
    let is_stored = share.of.truth("store dos attributes") != Some(false);
    let has_lists = share.has_lists;
    let mut keys = Vec::new();
    for attribute in &MAPPED {
        let is_mapped = share.maps(attribute);
        if is_mapped && !is_stored && !has_lists {
            keys.push(attribute.key);
        }
        let told = share.of.section.parameter(attribute.option).filter(|_| is_mapped);
        let Some(parameter) = told else { continue };
        let (weight, why) = match (is_stored, has_lists) {
            (true, _) => (Weight::Harmless, "attributes are stored, as in Samba"),
            (false, true) => (
                Weight::LeftOut,
                "a stored access list does not apply any more when the mode changes",
            ),
            (false, false) => continue,
        };
        report.parameter(weight, &share.of.section.name, parameter, why);
    }
    if share.inherits_owner() == Some(true) && !has_lists {
        keys.push("inherit_owner");
    }
    let writers = share.of.parameter("dos filemode").filter(|p| truth(&p.value) == Some(true));
    match writers {
        Some(parameter) if has_lists => {
            let why = "a stored access list says who may change it, also to who may write the file";
            report.parameter(Weight::Stricter, &share.of.section.name, parameter, why);
        }
        Some(_) if share.of.truth("nt acl support") != Some(false) => keys.push("dos_filemode"),
        _ => {}
    }
    if !keys.is_empty() && share.of.truth("nt acl support") != Some(false) {
        // Samba without acl_xattr has no other lists.
        line(toml, "nt_acls", "\"posix\"");
    }
    keys.into_iter().for_each(|key| line(toml, key, "true"));
}
