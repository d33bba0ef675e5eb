//! The argument of the examples: `smb://USER@HOST[:PORT]/SHARE[/PATH]`.

use std::error::Error;

use frevo_client::{Client, Credentials, Share, SmbUrl};

/// Logs on to the server that `url` names, with the password in `FREVO_PASSWORD`, and
/// returns the share and the path in it. Links of DFS namespaces are followed.
pub(crate) async fn connect(url: &str) -> Result<(Share, String), Box<dyn Error>> {
    let url: SmbUrl = url.parse()?;
    let user = url.user.as_deref().ok_or("write smb://USER@HOST/SHARE: no user is named")?;
    let password = std::env::var("FREVO_PASSWORD").map_err(|_| "set FREVO_PASSWORD")?;
    let credentials = Credentials::new(user, password);
    Ok(Client::default().resolve(&url, &credentials).await?)
}
