//! Symbolic links that stop a CREATE: MS-SMB2 3.2.5.7.

use frevo_wire::Utf16;
use frevo_wire::error_response::{ErrorId, ErrorResponse, SymlinkError};

use crate::connection::Message;

/// The path to open instead of `path`, which a symbolic link stopped.
pub(crate) fn led(message: &Message, path: &str) -> Option<String> {
    let response = ErrorResponse::parse(message.bytes()).ok()?;
    let link = SymlinkError::parse(response.data(ErrorId::DEFAULT)?).ok()?;
    redirected(path, link.unparsed_path_length, &link.substitute_name, link.relative)
}

/// The path behind a link that stopped a request: the last `unparsed` bytes of `path` lie
/// behind the link. `None` if the link leads out of the share.
fn redirected(path: &str, unparsed: u16, target: &Utf16<'_>, relative: bool) -> Option<String> {
    let units: Vec<u16> = path.encode_utf16().collect();
    let behind = usize::from(unparsed) / 2;
    let link = String::from_utf16(units.get(..units.len().checked_sub(behind)?)?).ok()?;
    let rest = String::from_utf16(units.get(units.len() - behind..)?).ok()?;
    let target = target.to_string().ok()?.replace('/', "\\");
    if !relative {
        return None;
    }
    let mut parts: Vec<&str> = link.split('\\').filter(|part| !part.is_empty()).collect();
    parts.pop();
    for part in target.split('\\').chain(rest.split('\\')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_within_the_share_or_nowhere() {
        let go = |path: &str, unparsed, target: &str, relative| {
            redirected(path, unparsed, &Utf16::from_str(target), relative)
        };
        assert_eq!(go("a\\link\\x", 4, "b", true).unwrap(), "a\\b\\x");
        assert_eq!(go("a\\link", 0, "..\\c/d", true).unwrap(), "c\\d");
        assert_eq!(go("link", 0, "..\\..\\etc", true), None);
        assert_eq!(go("link", 0, "\\??\\C:\\x", false), None);
        assert_eq!(go("link", 400, "b", true), None);
    }
}
