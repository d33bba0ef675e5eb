//! Comparison of a client's service principal name with this server's names.

use alloc::string::String;
use core::net::IpAddr;

/// True if `spn` (`cifs/HOST`, `cifs/HOST:PORT`, `cifs/HOST/INSTANCE`) is the file service of one
/// of `names`, which are host names or addresses as text.
///
/// A client that was lured to another host, or to another service of this host, names that one in
/// MsvAvTargetName. Its response is then worthless here, which prevents relaying (Windows calls the
/// check SPN target name validation).
pub fn is_ours<'a>(spn: &str, names: impl IntoIterator<Item = &'a str>) -> bool {
    let Some((service, rest)) = spn.split_once('/') else { return false };
    if !service.eq_ignore_ascii_case("cifs") {
        return false;
    }
    let host = Host::of(rest.split('/').next().unwrap_or_default());
    host.as_ref()
        .is_some_and(|host| names.into_iter().any(|name| Host::of(name).as_ref() == Some(host)))
}

/// Returns the channel binding of a TLS or QUIC connection for MsvAvChannelBindings: the MD5 hash
/// of a `gss_channel_bindings_struct` without addresses (RFC 4121 4.1.1.2) around
/// `application_data` (RFC 5929: `tls-server-end-point:` and the hash of the server's certificate).
pub fn channel_bindings_hash(application_data: &[u8]) -> [u8; 16] {
    use md5::{Digest, Md5};
    let length = u32::try_from(application_data.len()).unwrap_or(u32::MAX);
    Md5::new()
        .chain_update([0u8; 16])
        .chain_update(length.to_le_bytes())
        .chain_update(application_data)
        .finalize()
        .into()
}

#[derive(Debug, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    Name(String),
}

impl Host {
    fn of(text: &str) -> Option<Self> {
        let address = |text: &str| {
            let text = text.split('%').next()?;
            text.parse::<IpAddr>().ok().map(|a| Self::Address(a.to_canonical()))
        };
        if let Some(bracketed) = text.strip_prefix('[') {
            return address(bracketed.split(']').next()?);
        }
        if let Some(host) = address(text) {
            return Some(host);
        }
        let name = text.split(':').next()?;
        if let Some(host) = address(name) {
            return Some(host);
        }
        let name = name.strip_suffix('.').unwrap_or(name);
        (!name.is_empty()).then(|| Self::Name(name.to_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["FILES", "files.example.org", "192.0.2.7", "2001:db8::7"];

    #[test]
    fn our_names_in_every_spelling() {
        for spn in [
            "cifs/FILES",
            "CIFS/files",
            "cifs/Files.Example.ORG",
            "cifs/files.example.org.",
            "cifs/files.example.org:445",
            "cifs/files/instance",
            "cifs/192.0.2.7",
            "cifs/192.0.2.7:445",
            "cifs/2001:DB8:0:0::7",
            "cifs/[2001:db8::7]:445",
            "cifs/2001:db8::7%eth0",
            "cifs/::ffff:192.0.2.7",
        ] {
            assert!(is_ours(spn, NAMES), "{spn}");
        }
    }

    #[test]
    fn other_hosts_and_other_services_are_not_ours() {
        for spn in [
            "cifs/other",
            "cifs/files.example.com",
            "cifs/FILES2",
            "cifs/192.0.2.8",
            "cifs/2001:db8::8",
            "HTTP/FILES",
            "host/FILES",
            "FILES",
            "cifs/",
            "cifs/:445",
            "cifs/[",
            "/FILES",
            "",
        ] {
            assert!(!is_ours(spn, NAMES), "{spn}");
        }
        assert!(!is_ours("cifs/", [""]));
    }

    #[test]
    fn bindings_hash_the_structure_around_the_data() {
        use md5::{Digest, Md5};
        let mut structure = alloc::vec![0u8; 16];
        structure.extend([3, 0, 0, 0]);
        structure.extend(b"abc");
        let expected: [u8; 16] = Md5::digest(&structure).into();
        assert_eq!(channel_bindings_hash(b"abc"), expected);
    }
}
