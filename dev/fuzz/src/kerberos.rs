//! The files of Kerberos: keytabs, credentials caches, and the names in them.

use frevo_auth::kerberos::{CredentialsCache, Keytab, Principal, ccache};

/// By the first byte: which file the rest is.
pub fn kerberos_files(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind % 4 {
        0 => {
            let Ok(keytab) = Keytab::parse(data) else { return };
            for entry in &keytab.entries {
                assert!(!keytab.keys_of(&entry.key.principal).is_empty());
                name(&entry.key.principal);
            }
        }
        1 => {
            let Ok(cache) = CredentialsCache::parse(data) else { return };
            for ticket in &cache.tickets {
                let found = cache.find(&ticket.server, 0, ticket.start_time);
                assert!(found.is_none_or(|found| found.client == cache.client));
                name(&ticket.server);
            }
        }
        2 => {
            let text = String::from_utf8_lossy(data);
            if let Some(principal) = Principal::parse(&text, "REALM") {
                name(&principal);
            }
        }
        _ => {
            let text = String::from_utf8_lossy(data);
            assert!(ccache::primary(&text).is_none_or(|name| !name.contains('/')));
        }
    }
}

/// A name is parsed as it is written, unless it has characters that cannot be written.
fn name(principal: &Principal) {
    let text = principal.to_string();
    assert!(!text.contains(char::is_control));
    let is_plain = |part: &String| !part.is_empty() && !part.contains(char::is_control);
    let all = principal.components.iter().chain([&principal.realm]);
    if let (true, Some(parsed)) = (all.clone().all(is_plain), Principal::parse(&text, "")) {
        assert_eq!(parsed, *principal);
    }
}
