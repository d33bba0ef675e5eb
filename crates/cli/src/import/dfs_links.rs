//! Links that Samba keeps as symbolic links in a share with `msdfs root`: `msdfs:server\share,...`.

use std::collections::BTreeMap;
use std::path::Path;

use frevo_dfs::{BadLink, Link, Namespace, Root, Target, samba_targets};

use super::report::{Report, Weight};
use super::smb_conf::{Parameter, SmbConf};
use super::toml_text::{line, quoted};
use super::words::truth;

/// Files and folders of a share that are looked at.
const ENTRIES_MAX: usize = 1_000_000;
/// Depth of folders that are looked at.
const DEPTH_MAX: usize = 64;

/// The symbolic links of one share: their paths below it, and their texts.
pub(super) type SambaLinks = BTreeMap<String, String>;

/// Finds the links of all shares that are roots, by the names of their sections.
pub(super) fn find(conf: &SmbConf) -> BTreeMap<String, SambaLinks> {
    let of_all = |name: &str| conf.global().and_then(|global| global.value(name));
    let shares = conf.shares().filter_map(|section| {
        let value = |name: &str| section.value(name).or_else(|| of_all(name));
        let is_root = value("msdfs root").and_then(truth) == Some(true);
        let folder = Path::new(value("path").filter(|_| is_root)?);
        let mut found = SambaLinks::new();
        let mut left = ENTRIES_MAX;
        folder.is_dir().then(|| {
            look(folder, "", DEPTH_MAX, &mut left, &mut found);
            (section.name.to_ascii_lowercase(), found)
        })
    });
    shares.collect()
}

/// Looks through a folder, and through its folders. No symbolic link is followed.
fn look(folder: &Path, path: &str, depth: usize, left: &mut usize, found: &mut SambaLinks) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.filter_map(Result::ok) {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else {
            continue;
        };
        let below = if path.is_empty() { name } else { format!(r"{path}\{name}") };
        if kind.is_dir() && depth > 0 {
            look(&entry.path(), &below, depth - 1, left, found);
        } else if kind.is_symlink()
            && let Ok(text) = std::fs::read_link(entry.path())
            && let Some(text) = text.to_str().filter(|text| text.starts_with("msdfs:"))
        {
            found.insert(below, text.to_owned());
        }
    }
}

/// A link with its targets.
fn link_of(path: &str, text: &str) -> Result<Link, String> {
    let targets = samba_targets(text).unwrap_or_else(|| Err(BadLink::NoTarget(path.into())));
    let link = targets.and_then(|targets| Link::new(path, targets));
    link.map_err(|fault| fault.to_string())
}

/// A share that is the root of a namespace, and has the links of Samba.
#[derive(Debug)]
pub(super) struct DfsRoot<'a> {
    /// The name of the share.
    pub(super) name: &'a str,
    /// `msdfs root`
    pub(super) parameter: &'a Parameter,
    /// True if Samba tells the targets of a link in a random order.
    pub(super) is_shuffled: bool,
    /// True for a share with a name or a folder for each user.
    pub(super) has_user_part: bool,
    /// The links; None if they are not known.
    pub(super) links: Option<&'a SambaLinks>,
}

/// Writes the namespace of a share. Its root is the share, with the rights of the share, so it opens nothing.
pub(super) fn write(root: &DfsRoot<'_>, report: &mut Report, toml: &mut String) {
    let name = root.name;
    if root.has_user_part {
        let why = "a share with a folder for each user cannot be the root of a namespace";
        return report.parameter(Weight::LeftOut, name, root.parameter, why);
    }
    let Some(found) = root.links else {
        let why = "its links (msdfs:) are not known here; import on the Samba server, or add them with \
                   frevo namespace add";
        report.parameter(Weight::LeftOut, name, root.parameter, why);
        return write_namespace(root, &[], toml);
    };
    if !found.is_empty() {
        let what = "the links of the folder (msdfs:) are copied into a namespace; with samba_links = true in the \
                    share they would be served as they stand, without the namespace";
        report.note(Weight::Harmless, name, what);
    }
    // Links whose names differ in case alone would be one.
    let mut namespace = Namespace::new(name, Root::Share);
    let mut links: Vec<Link> = Vec::new();
    for (path, text) in found {
        let added = link_of(path, text).and_then(|link| {
            namespace.insert(link.clone()).map_err(|fault| fault.to_string())?;
            Ok(link)
        });
        match added {
            Ok(link) => links.push(link),
            Err(why) => {
                let what = format!("the link {path} ({text}) is not taken over: {why}");
                report.note(Weight::LeftOut, name, &what);
            }
        }
    }
    write_namespace(root, &links, toml);
}

fn write_namespace(root: &DfsRoot<'_>, links: &[Link], toml: &mut String) {
    let is_shuffled = root.is_shuffled;
    toml.push_str("\n[[namespace]]\n");
    line(toml, "name", &quoted(root.name));
    // Without shuffling, Samba tells targets in the order of the link.
    line(toml, "ordering", if is_shuffled { "\"random\"" } else { "\"priority\"" });
    for link in links {
        toml.push_str("\n[[namespace.link]]\n");
        line(toml, "path", &quoted(link.path()));
        let is_ranked = !is_shuffled && link.targets().len() > 1;
        let target = |(at, target): (usize, &Target)| {
            let path = quoted(&target.to_string());
            let rank = at.min(usize::from(frevo_dfs::limits::RANK));
            if is_ranked { format!("{{ path = {path}, rank = {rank} }}") } else { path }
        };
        let targets: Vec<String> = link.targets().iter().enumerate().map(target).collect();
        line(toml, "targets", &format!("[{}]", targets.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use frevo_config::Config;

    use super::super::host_facts::HostFacts;
    use super::super::whole::convert;
    use super::*;

    /// The namespaces of an smb.conf on a host with these links.
    fn import(text: &str, host: &HostFacts) -> (Config, String) {
        let conf = SmbConf::parse(text).unwrap();
        let (toml, report) = convert(&conf, &[], host);
        let config = Config::parse(&toml).unwrap_or_else(|faults| panic!("{faults:?} in:\n{toml}"));
        (config, report.lines().join("\n"))
    }

    fn links(config: &Config) -> Vec<(String, Vec<String>)> {
        let namespace = config.namespaces[0].namespace(&config.shares).unwrap();
        let targets = |link: &Link| link.targets().iter().map(Target::to_string).collect();
        namespace.links().map(|link| (link.path().to_owned(), targets(link))).collect()
    }

    #[test]
    fn links_of_samba_become_links() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("root");
        std::fs::create_dir_all(folder.join("dept/deep")).unwrap();
        let link =
            |text: &str, at: &str| std::os::unix::fs::symlink(text, folder.join(at)).unwrap();
        link(r"msdfs:one\data", "plain");
        link("msdfs:one/data,\\two\\data\\sub", "dept/deep/two");
        link("msdfs:one", "bad");
        link("/etc", "etc");
        link(r"msdfs:one\x", "dept/Case");
        link(r"msdfs:one\y", "dept/case");
        std::fs::write(folder.join("file"), "msdfs:one\\data").unwrap();
        let text =
            format!("[x]\npath = {}\nmsdfs root = yes\nvalid users = ann\n", folder.display());
        let found = find(&SmbConf::parse(&text).unwrap());
        let host = HostFacts { dfs_links: found, ..HostFacts::default() };
        let (config, report) = import(&text, &host);
        let all = links(&config);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all.contains(&(String::from("plain"), vec![String::from(r"\\one\data")])));
        let two = [r"\\one\data", r"\\two\data\sub"].map(String::from).to_vec();
        assert!(all.contains(&(String::from(r"dept\deep\two"), two)), "{all:?}");
        assert!(report.contains("the link bad (msdfs:one) is not taken over"), "{report}");
        assert!(report.contains("is not taken over: a second link"), "{report}");
        // The root has the rights of the share.
        assert_eq!(config.shares[0].allow.len(), 1);
        assert!(config.namespaces[0].allow.is_empty());
        // The order of Samba's targets is kept, or they are shuffled.
        let rank = |config: &Config| {
            let targets =
                config.namespaces[0].links.iter().map(|link| link.targets.get_ref().clone());
            targets.flatten().filter_map(|target| target.rank).collect::<Vec<u8>>()
        };
        assert_eq!(rank(&config), [0, 1]);
        let (config, _) = import(&format!("{text}msdfs shuffle referrals = yes\n"), &host);
        assert_eq!(rank(&config), [0; 0]);
    }

    #[test]
    fn a_root_that_is_closed_stays_closed() {
        let none = HostFacts::default();
        let root = "[x]\npath = /srv/x\nmsdfs root = yes\n";
        let (config, report) = import(root, &none);
        assert_eq!((config.shares.len(), config.namespaces.len()), (1, 1));
        assert!(report.contains("links (msdfs:) are not known here"), "{report}");
        for closed in [
            format!("[global]\nhost msdfs = no\n{root}"),
            root.replace("yes", "no"),
            format!("{root}available = no\n"),
            format!("{root}valid users = OTHER\\ann\n"),
            format!("{root}msdfs proxy = \\a\\b\n"),
            String::from("[homes]\nmsdfs root = yes\n"),
        ] {
            let (config, report) = import(&closed, &none);
            assert_eq!(config.namespaces.len(), 0, "{closed}: {report}");
        }
    }
}
