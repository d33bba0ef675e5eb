//! Links that Samba keeps as symbolic links of the host: `msdfs:server\share,server2\share2`.

use alloc::format;
use alloc::vec::Vec;

use crate::limits::{RANK, SAMBA_LINK_TTL_S, TARGETS};
use crate::link::{BadLink, Link, Ordering, Target};

/// The beginning of the text of such a link.
const BEGINNING: &str = "msdfs:";

/// Returns the targets in the text of a symbolic link, in its order. None for a text that does not begin
/// with `msdfs:`, which is no link of DFS.
///
/// # Errors
/// [`BadLink::Target`] for a text that names no share, [`BadLink::Targets`] for too many.
pub fn samba_targets(text: &str) -> Option<Result<Vec<Target>, BadLink>> {
    let listed = text.strip_prefix(BEGINNING)?;
    let parts = listed.split(',');
    if parts.clone().nth(TARGETS).is_some() {
        return Some(Err(BadLink::Targets(text.into())));
    }
    let target = |(at, part): (usize, &str)| {
        // The manual of Samba writes two backslashes for one.
        let names: Vec<&str> = part.split(['\\', '/']).filter(|name| !name.is_empty()).collect();
        let mut target = Target::new(&format!(r"\\{}", names.join("\\")))?;
        // Without shuffling, smbd tells targets in the order of the text.
        target.rank = u8::try_from(at).unwrap_or(RANK).min(RANK);
        Ok(target)
    };
    Some(parts.enumerate().map(target).collect())
}

/// Returns the link at `path` that a symbolic link of this text is. None for any other text, and for one
/// that cannot be a link.
pub fn samba_link(path: &str, text: &str) -> Option<Link> {
    let targets = samba_targets(text)?.ok()?;
    let mut link = Link::new(path, targets).ok()?;
    link.ordering = Some(Ordering::Priority);
    link.ttl_s = Some(SAMBA_LINK_TTL_S);
    Some(link)
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use super::*;

    #[test]
    fn texts_of_samba_are_read() {
        let paths = |text: &str| -> Vec<String> {
            let link = samba_link("x", text);
            link.iter().flat_map(|link| link.targets()).map(ToString::to_string).collect()
        };
        assert_eq!(paths(r"msdfs:one\data"), [r"\\one\data"]);
        assert_eq!(paths(r"msdfs:one\\data"), [r"\\one\data"]);
        assert_eq!(paths("msdfs:one/data/sub,\\\\two\\data\\"), [r"\\one\data\sub", r"\\two\data"]);
        let link = samba_link("x", r"msdfs:b\x,a\x").unwrap();
        assert_eq!((link.targets()[0].rank, link.targets()[1].rank), (0, 1));
        assert_eq!(link.ordering, Some(Ordering::Priority));
        for none in
            ["", "one\\data", "MSDFS:one\\data", " msdfs:one\\data", "msdfs", "./msdfs:one\\data"]
        {
            assert!(samba_targets(none).is_none() && samba_link("x", none).is_none(), "{none}");
        }
        let many = |count: usize| {
            let all: Vec<String> = (0..count).map(|at| format!(r"s{at}\x")).collect();
            format!("msdfs:{}", all.join(","))
        };
        assert_eq!(paths(&many(TARGETS)).len(), TARGETS);
        let bad = ["msdfs:", "msdfs:one", "msdfs:one\\x,", "msdfs:one\\x,one\\X", "msdfs:a\\..\\b"];
        for text in bad.map(String::from).into_iter().chain([many(TARGETS + 1)]) {
            assert!(samba_link("x", &text).is_none(), "{text}");
        }
    }
}
