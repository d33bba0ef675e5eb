//! The servers of the command's URLs, by the way that these name. A server is known by its key
//! (`location::server_key`).

use parking_lot::Mutex;

/// The beginning of the URLs of servers that speak only SMB1.
pub(in super::super) const SCHEME: &str = "smb1://";

#[derive(Debug)]
struct Named {
    by_smb1: Vec<String>,
    by_others: Vec<String>,
    /// Those about which the user has been warned.
    warned: Vec<String>,
}

static NAMED: Mutex<Named> =
    Mutex::new(Named { by_smb1: Vec::new(), by_others: Vec::new(), warned: Vec::new() });

/// Returns the same URL with the scheme of others, if it has that of SMB1.
pub(in super::super) fn without_scheme(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| format!("smb://{rest}"))
}

/// Notes the way to a server that a URL names.
///
/// # Errors
/// If another URL names another way to the same server.
pub(in super::super) fn note(server: String, is_smb1: bool) -> Result<(), String> {
    let mut named = NAMED.lock();
    let Named { by_smb1, by_others, .. } = &mut *named;
    let (to, others) = if is_smb1 { (by_smb1, by_others) } else { (by_others, by_smb1) };
    if others.contains(&server) {
        return Err(format!("{server} is named by smb1:// and by smb://; write one of them"));
    }
    if !to.contains(&server) {
        to.push(server);
    }
    Ok(())
}

/// Returns true if URLs of this server are written with `smb1://`.
pub(in super::super) fn is_written_so(server: &str) -> bool {
    NAMED.lock().by_smb1.iter().any(|one| one == server)
}

/// Returns true if the user is to be warned about a server, once.
pub(super) fn needs_warning(server: String) -> bool {
    let mut named = NAMED.lock();
    if named.warned.contains(&server) {
        return false;
    }
    named.warned.push(server);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_is_known_in_any_case() {
        assert_eq!(without_scheme("SMB1://nas/s/a").as_deref(), Some("smb://nas/s/a"));
        assert_eq!(without_scheme("smb://nas/s"), None);
        assert_eq!(without_scheme("smb1:/"), None);
    }

    #[test]
    fn a_server_is_named_in_one_way() {
        let one = || String::from("a-server-of-this-test:445");
        note(one(), true).unwrap();
        note(one(), true).unwrap();
        assert!(is_written_so(&one()) && note(one(), false).is_err());
        let other = || String::from("another-server-of-this-test:445");
        note(other(), false).unwrap();
        assert!(note(other(), true).is_err() && !is_written_so(&other()));
        assert!(needs_warning(one()) && !needs_warning(one()));
    }
}
