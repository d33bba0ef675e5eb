//! What the examples take as argument: `smb://USER@HOST[:PORT]/SHARE[/PATH]`.

use std::error::Error;

use frevo_client::{Client, Credentials, ServerName, Share};

/// Logs on to the server that `url` names, with the password in
/// `FREVO_PASSWORD`. Gives the share and the path in it; links of DFS namespaces
/// are followed. Escapes (`%20`) are not understood.
pub(crate) async fn reach(url: &str) -> Result<(Share, String), Box<dyn Error>> {
    let (user, server, share, path) =
        parse(url).ok_or("write smb://USER@HOST[:PORT]/SHARE[/PATH]")?;
    let password = std::env::var("FREVO_PASSWORD").map_err(|_| "set FREVO_PASSWORD")?;
    let credentials = Credentials::password(user, password);
    Ok(Client::default().reach(server, &credentials, share, path).await?)
}

/// User, server, share and path of a URL.
pub(crate) fn parse(url: &str) -> Option<(&str, ServerName, &str, &str)> {
    let (authority, path) = url.strip_prefix("smb://")?.split_once('/')?;
    let (user, host) = authority.rsplit_once('@')?;
    let (host, port) = match host.rsplit_once(':') {
        // Not the colons of [2001:db8::1].
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (host, ServerName::PORT),
    };
    let server = ServerName::new(host.trim_matches(['[', ']'])).at_port(port);
    let (share, path) = path.split_once('/').unwrap_or((path, ""));
    Some((user, server, share, path))
}
