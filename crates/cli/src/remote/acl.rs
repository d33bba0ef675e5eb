//! `acl`: an access list with the names of those in it, shown and changed.

use std::collections::HashMap;
use std::str::FromStr;

use clap::Args;
use frevo_client::{
    AccessMask, Account, Ace, AceFlags, AceKind, Acl, DaclControl, SecurityDescriptor, Session,
    Share, Sid,
};
use serde_json::json;

use super::connection_options::Connection;
use super::location::Url;
use super::logon::failed;
use super::output::line;
use crate::exit::{Done, Exit, Failure};

/// `frevo acl`
#[derive(Debug, Args)]
pub(crate) struct AclArguments {
    /// File or directory
    pub(crate) url: Url,
    /// Add an entry, such as allow:ann:change or deny:FILES\guests:w:oi,ci;
    /// repeatable
    #[arg(long, value_name = "KIND:WHO:RIGHTS[:FLAGS]")]
    pub(crate) add: Vec<Entry>,
    /// Remove all entries of a user or group, or one entry; repeatable
    #[arg(long, value_name = "WHO|ENTRY")]
    pub(crate) remove: Vec<String>,
    /// Replace all entries that are not inherited by these; repeatable
    #[arg(long, value_name = "KIND:WHO:RIGHTS[:FLAGS]", conflicts_with_all = ["add", "remove"])]
    pub(crate) set: Vec<Entry>,
    /// Change the owner
    #[arg(long, value_name = "WHO")]
    pub(crate) owner: Option<String>,
    /// Show SIDs and access masks, not names
    #[arg(long, short)]
    pub(crate) numeric: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// An entry as it is written on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    kind: AceKind,
    who: String,
    mask: AccessMask,
    /// None: what is usual for a file or a directory.
    flags: Option<AceFlags>,
}

const FULL: u32 = 0x1F_01FF;

/// Words for rights. Explorer's change is without the right to delete what is in a
/// directory, smbcacls' with it.
const WORDS: [(&str, u32); 5] = [
    ("full", FULL),
    ("change", 0x13_01BF),
    ("change", 0x13_01FF),
    ("read", 0x12_00A9),
    ("write", 0x10_0116),
];

/// Letters as icacls and smbcacls have them.
const LETTERS: [(char, u32); 6] = [
    ('R', 0x12_0089),
    ('W', 0x12_0116),
    ('X', 0x12_00A0),
    ('D', 0x01_0000),
    ('P', 0x04_0000),
    ('O', 0x08_0000),
];

const FLAGS: [(&str, AceFlags); 5] = [
    ("oi", AceFlags::OBJECT_INHERIT),
    ("ci", AceFlags::CONTAINER_INHERIT),
    ("np", AceFlags::NO_PROPAGATE_INHERIT),
    ("io", AceFlags::INHERIT_ONLY),
    ("inherited", AceFlags::INHERITED),
];

impl FromStr for Entry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split(':').collect();
        let (kind, who, rights, flags) = match *parts {
            [kind, who, rights] => (kind, who, rights, None),
            [kind, who, rights, flags] => (kind, who, rights, Some(flags)),
            _ => return Err(format!("{text}: write KIND:WHO:RIGHTS, as in allow:ann:read")),
        };
        let kind = match kind {
            "allow" => AceKind::Allow,
            "deny" => AceKind::Deny,
            _ => {
                return Err(format!(
                    "{text}: an entry begins with allow or deny, as in allow:ann:read"
                ));
            }
        };
        if who.is_empty() {
            return Err(format!("{text} names no user or group"));
        }
        let flags = flags.map(parse_flags).transpose()?;
        Ok(Self { kind, who: who.into(), mask: parse_rights(rights, kind)?, flags })
    }
}

/// The mask of a word or letter in an entry of `kind`. An entry that denies has no
/// SYNCHRONIZE, and for writing no READ_CONTROL, as Explorer writes it: every open
/// asks for these two, so denying them would deny all access.
fn of_kind(mask: u32, kind: AceKind) -> u32 {
    const SYNCHRONIZE: u32 = AccessMask::SYNCHRONIZE.bits();
    const WRITES: u32 = 0x116;
    match kind {
        AceKind::Deny if mask == FULL => mask,
        AceKind::Deny if mask & 0x1FF == WRITES => mask & WRITES,
        AceKind::Deny => mask & !SYNCHRONIZE,
        _ => mask,
    }
}

fn parse_rights(text: &str, kind: AceKind) -> Result<AccessMask, String> {
    let number = text.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let of_kind = |mask: u32| of_kind(mask, kind);
    let word = || WORDS.iter().find(|(word, _)| *word == text).map(|(_, mask)| of_kind(*mask));
    let letters = || {
        let bits = text.chars().map(|c| {
            let found = LETTERS.iter().find(|(l, _)| *l == c.to_ascii_uppercase());
            found.map(|(_, mask)| of_kind(*mask))
        });
        bits.reduce(|a, b| Some(a? | b?)).flatten()
    };
    number.or_else(word).or_else(letters).map(AccessMask::from_bits).ok_or_else(|| {
        format!("{text}: rights are full, change, read, write, letters of RWXDPO, or a number such as 0x1f01ff")
    })
}

fn parse_flags(text: &str) -> Result<AceFlags, String> {
    let mut flags = AceFlags::EMPTY;
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let found = FLAGS.iter().find(|(name, flag)| *name == word && *flag != AceFlags::INHERITED);
        let (_, flag) = found
            .ok_or_else(|| format!("there is no flag {word:?}; the flags are oi, ci, np and io"))?;
        flags |= *flag;
    }
    Ok(flags)
}

fn shown_rights(mask: AccessMask, kind: AceKind) -> String {
    let word = WORDS.iter().find(|(_, bits)| of_kind(*bits, kind) == mask.bits());
    word.map_or_else(|| format!("{:#010x}", mask.bits()), |(word, _)| (*word).to_owned())
}

fn shown_flags(flags: AceFlags) -> String {
    let words = FLAGS.iter().filter(|(_, flag)| flags.contains(*flag)).map(|(word, _)| *word);
    words.collect::<Vec<_>>().join(",")
}

fn shown_kind(kind: AceKind) -> String {
    match kind {
        AceKind::Allow => String::from("allow"),
        AceKind::Deny => String::from("deny"),
        other => format!("{other}"),
    }
}

/// Names of SIDs, as far as the server tells them.
struct Names(HashMap<Sid, String>);

impl Names {
    async fn of(session: &Session, descriptor: &SecurityDescriptor, numeric: bool) -> Self {
        let mut sids: Vec<Sid> =
            descriptor.owner.iter().chain(&descriptor.group).copied().collect();
        sids.extend(entries(descriptor).iter().filter_map(Ace::sid));
        sids.sort_unstable_by_key(ToString::to_string);
        sids.dedup();
        let mut names = HashMap::new();
        if numeric || sids.is_empty() {
            return Self(names);
        }
        // If the names of the SIDs cannot be looked up, the SIDs are printed instead.
        if let Ok(found) = session.lookup_sids(&sids).await {
            for account in found.into_iter().flatten() {
                names.insert(account.sid, name(&account));
            }
        }
        Self(names)
    }

    fn shown(&self, sid: Option<Sid>) -> String {
        let Some(sid) = sid else { return String::new() };
        self.0.get(&sid).cloned().unwrap_or_else(|| sid.to_string())
    }
}

fn name(account: &Account) -> String {
    match (account.domain.is_empty(), account.name.is_empty()) {
        (true, _) => account.name.clone(),
        (false, true) => account.domain.clone(),
        (false, false) => format!("{}\\{}", account.domain, account.name),
    }
}

fn entries(descriptor: &SecurityDescriptor) -> &[Ace] {
    descriptor.dacl.as_ref().map(|acl| acl.aces.as_slice()).unwrap_or_default()
}

pub(crate) async fn acl(arguments: &AclArguments) -> Done {
    let (connection, url) = (&arguments.connection, &arguments.url);
    let (share, url) = &connection.reach(url).await?;
    if !arguments.set.is_empty()
        || !arguments.add.is_empty()
        || !arguments.remove.is_empty()
        || arguments.owner.is_some()
    {
        return change(arguments, share, url).await;
    }
    let security = share.security(&url.path).await.map_err(failed)?;
    let names = Names::of(share.session(), &security, arguments.numeric).await;
    let (owner, group) = (security.owner, security.group);
    if connection.json {
        for ace in entries(&security) {
            let object = json!({
                "kind": format!("{}", ace.kind()),
                "sid": ace.sid().map(|sid| sid.to_string()),
                "name": ace.sid().and_then(|sid| names.0.get(&sid)),
                "mask": ace.mask().map_or(0, |mask| mask.bits()),
                "flags": ace.flags().bits(),
            });
            if !line(object) {
                return Ok(());
            }
        }
        let sid = |sid: Option<Sid>| sid.map(|sid| sid.to_string()).unwrap_or_default();
        line(json!({
            "owner": sid(owner), "group": sid(group),
            "owner_name": names.shown(owner), "group_name": names.shown(group),
        }));
        return Ok(());
    }
    line(format_args!("owner {}", names.shown(owner)));
    line(format_args!("group {}", names.shown(group)));
    if security.dacl.is_none() {
        line("no access list: everyone has full access");
    }
    for ace in entries(&security) {
        let (kind, who) = (shown_kind(ace.kind()), names.shown(ace.sid()));
        let rights = match ace.mask() {
            Some(mask) if arguments.numeric => format!("{:#010x}", mask.bits()),
            Some(mask) => shown_rights(mask, ace.kind()),
            None => String::from("?"),
        };
        let flags = shown_flags(ace.flags());
        let colon = if flags.is_empty() { "" } else { ":" };
        if !line(format_args!("{kind}:{who}:{rights}{colon}{flags}")) {
            break;
        }
    }
    Ok(())
}

async fn change(arguments: &AclArguments, share: &Share, url: &Url) -> Done {
    let security = share.security(&url.path).await.map_err(failed)?;
    let is_dir = share.metadata(&url.path).await.map_err(failed)?.is_dir();
    let session = share.session();
    let mut new = SecurityDescriptor::default();
    if let Some(owner) = &arguments.owner {
        new.owner = Some(sid_of(session, owner).await?);
    }
    let mut aces = entries(&security).to_vec();
    let before = aces.clone();
    if !arguments.set.is_empty() {
        aces.retain(|ace| ace.flags().contains(AceFlags::INHERITED));
    }
    for text in &arguments.remove {
        remove(&mut aces, text, session, is_dir).await?;
    }
    for entry in arguments.set.iter().chain(&arguments.add) {
        let ace = ace_of(entry, session, is_dir).await?;
        if !aces.contains(&ace) {
            aces.push(ace);
        }
    }
    // MS-DTYP 2.4.5: entries that deny come before those that allow, and inherited entries come
    // last.
    aces.sort_by_key(|ace| {
        let is_inherited = ace.flags().contains(AceFlags::INHERITED);
        (is_inherited, !is_inherited && ace.kind() != AceKind::Deny)
    });
    if aces != before || security.dacl.is_none() && !aces.is_empty() {
        new.dacl = Some(Acl::new(aces));
        let kept = DaclControl::DACL_PROTECTED | DaclControl::DACL_AUTO_INHERITED;
        new.control = DaclControl::DACL_PRESENT | (security.control & kept);
        if new.control.contains(DaclControl::DACL_AUTO_INHERITED) {
            new.control |= DaclControl::DACL_COMPUTED_INHERITANCE_REQUIRED;
        }
    }
    if new == SecurityDescriptor::default() {
        return Ok(());
    }
    share.set_security(&url.path, &new).await.map_err(failed)
}

/// Removes the entries of an account, or the one that `text` writes out. Those
/// that are inherited come from the directory above, and stay.
async fn remove(aces: &mut Vec<Ace>, text: &str, session: &Session, is_dir: bool) -> Done {
    let count = aces.len();
    if text.contains(':') {
        let entry: Entry = text.parse().map_err(|why| Failure::new(Exit::Usage, why))?;
        let ace = ace_of(&entry, session, is_dir).await?;
        let any_flags = entry.flags.is_none();
        aces.retain(|one| {
            let same = one.is_same_but_flags(&ace);
            let own = !one.flags().contains(AceFlags::INHERITED);
            !(same && own && (any_flags || one.flags() == ace.flags()))
        });
    } else {
        let sid = sid_of(session, text).await?;
        aces.retain(|one| {
            one.flags().contains(AceFlags::INHERITED) || one.sid().is_none_or(|who| who != sid)
        });
    }
    if aces.len() == count {
        let text = format!(
            "there is no such entry to remove: {text}; inherited entries are removed from the \
             directory that has them"
        );
        return Err(Failure::new(Exit::NotFound, text));
    }
    Ok(())
}

async fn ace_of(entry: &Entry, session: &Session, is_dir: bool) -> Result<Ace, Failure> {
    let sid = sid_of(session, &entry.who).await?;
    let usual = if is_dir {
        AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT
    } else {
        AceFlags::EMPTY
    };
    let flags = entry.flags.unwrap_or(usual);
    Ok(match entry.kind {
        AceKind::Deny => Ace::deny(flags, entry.mask, sid),
        _ => Ace::allow(flags, entry.mask, sid),
    })
}

async fn sid_of(session: &Session, who: &str) -> Result<Sid, Failure> {
    if let Ok(sid) = who.parse() {
        return Ok(sid);
    }
    let found = session.lookup_names(&[who]).await.map_err(failed)?;
    found.into_iter().next().flatten().ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("the server knows no user or group {who}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rights that every open asks for are not denied.
    #[test]
    fn to_deny_writing_does_not_deny_reading() {
        let mask = |text: &str| text.parse::<Entry>().unwrap().mask;
        let open = AccessMask::SYNCHRONIZE | AccessMask::READ_CONTROL;
        for rights in ["w", "write", "W"] {
            assert_eq!(mask(&format!("deny:ann:{rights}")), AccessMask::from_bits(0x116));
        }
        assert_eq!(mask("deny:ann:r"), AccessMask::from_bits(0x02_0089));
        assert_eq!(mask("deny:ann:rw"), AccessMask::from_bits(0x02_019F));
        assert_eq!(mask("deny:ann:full"), AccessMask::from_bits(FULL));
        assert_eq!(mask("deny:ann:0x120116"), AccessMask::from_bits(0x12_0116));
        for word in ["read", "write", "change", "full"] {
            assert!(mask(&format!("allow:ann:{word}")).contains(AccessMask::SYNCHRONIZE));
            let denied = mask(&format!("deny:ann:{word}"));
            assert_eq!(shown_rights(denied, AceKind::Deny), word);
        }
        assert!(mask("allow:ann:w").contains(open));
    }

    #[test]
    fn entries_are_read_and_shown_alike() {
        let entry: Entry = "deny:FILES\\ann:change:oi,ci".parse().unwrap();
        assert_eq!(entry.who, "FILES\\ann");
        assert_eq!(entry.kind, AceKind::Deny);
        let shown = shown_rights(entry.mask, entry.kind);
        assert_eq!((&*shown, entry.mask.bits()), ("change", 0x03_01BF));
        assert_eq!(shown_flags(entry.flags.unwrap()), "oi,ci");
        let letters: Entry = "allow:S-1-1-0:rx".parse().unwrap();
        assert_eq!(shown_rights(letters.mask, letters.kind), "read");
        assert_eq!("allow:x:0x00120089".parse::<Entry>().unwrap().mask.bits(), 0x12_0089);
        for wrong in [
            "ann",
            "allow:ann",
            "grant:ann:read",
            "allow::read",
            "allow:ann:rq",
            "allow:ann:r:xx",
            "allow:ann:",
            "allow:ann:r:inherited",
            "a:b:c:d:e",
        ] {
            assert!(wrong.parse::<Entry>().is_err(), "{wrong}");
        }
    }
}
