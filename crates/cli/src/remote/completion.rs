//! Completion of URLs in shells: the saved servers, the shares of a server, the files of a share.

use std::time::Duration;

use super::connection_options::Connection;
use super::location::Url;
use super::output::line;
use super::spelling;
use super::walk::{self, Kind};
use super::{logon, saved};
use crate::exit::Done;

/// A shell waits at most that long for its completions.
const PATIENCE: Duration = Duration::from_secs(3);

/// Names that are offered, at most.
const MOST: usize = 1_000;

/// Additions to the completion scripts of clap: a word that begins with smb:// is completed by
/// asking this program.
pub(crate) fn script(shell: clap_complete::Shell) -> &'static str {
    match shell {
        clap_complete::Shell::Bash => BASH,
        clap_complete::Shell::Zsh => ZSH,
        clap_complete::Shell::Fish => FISH,
        _ => "",
    }
}

const BASH: &str = r#"
_frevo_with_urls() {
    # The word as it was typed: bash breaks it at colons.
    local line="${COMP_LINE:0:COMP_POINT}" word found
    line="${line//\\ /%20}"
    word="${line##* }"
    case "$word" in
        smb:*|smb+quic:*)
            compopt -o nospace 2>/dev/null
            mapfile -t found < <(frevo complete-url "$word" 2>/dev/null)
            # What stands before the last colon is on the line already.
            local colon="${word%"${word##*:}"}"
            COMPREPLY=()
            local one
            for one in "${found[@]}"; do
                one="${one#"$colon"}"
                COMPREPLY+=("$(printf '%q' "$one")")
            done
            ;;
        *) _frevo "$@" ;;
    esac
}
complete -F _frevo_with_urls -o bashdefault -o default frevo
"#;

const ZSH: &str = r#"
_frevo_with_urls() {
    if [[ "$words[CURRENT]" == (smb|smb+quic):* ]]; then
        local -a found
        found=("${(@f)$(frevo complete-url "${(Q)words[CURRENT]}" 2>/dev/null)}")
        compadd -S '' -a found
    else
        _frevo "$@"
    fi
}
compdef _frevo_with_urls frevo
"#;

const FISH: &str = r#"
complete -c frevo -n 'string match -qr "^smb(\+quic)?:" -- (commandline -ct)' -a '(frevo complete-url (commandline -ct) 2>/dev/null)'
"#;

/// Prints the URLs that begin with `word`. A failure prints nothing: it would disturb the line that
/// is typed. No password is asked for.
pub(crate) async fn complete(connection: &Connection, word: &str) -> Done {
    let found = tokio::time::timeout(PATIENCE, candidates(connection, word)).await;
    let found = found.unwrap_or_default();
    found.iter().take(MOST).all(line);
    Ok(())
}

async fn candidates(connection: &Connection, word: &str) -> Vec<String> {
    let rest = word.split_once("://").map_or("", |(_, rest)| rest);
    if !rest.contains('/') {
        let servers = saved::urls().into_iter().map(|url| format!("{url}/"));
        return servers.filter(|url| url.starts_with(word)).collect();
    }
    let (before, name) = word.rsplit_once('/').unwrap_or((word, ""));
    let Ok(url) = before.parse::<Url>() else { return Vec::new() };
    // Completion must not ask for a password, so without a saved password it offers nothing.
    if !logon::has_password(connection, &url) {
        return Vec::new();
    }
    let prefix = spelling::path_to_wire(name).unwrap_or_default().to_lowercase();
    let names = if url.share.is_empty() {
        shares(connection, &url).await
    } else {
        files(connection, &url).await
    };
    let mut names: Vec<_> = names
        .into_iter()
        .filter(|(name, _)| name.to_lowercase().starts_with(&prefix))
        .map(|(name, is_directory)| {
            let slash = if is_directory { "/" } else { "" };
            format!("{before}/{}{slash}", spelling::in_url(&name))
        })
        .collect();
    names.sort_unstable();
    names
}

/// The shares of a server, as directories.
async fn shares(connection: &Connection, url: &Url) -> Vec<(String, bool)> {
    let Ok(session) = connection.log_on(url).await else { return Vec::new() };
    let shares = session.shares().await.unwrap_or_default();
    let disks = shares.into_iter().filter(|share| share.is_disk && !share.is_special);
    disks.map(|share| (share.name, true)).collect()
}

/// The entries of a directory; true for directories.
async fn files(connection: &Connection, url: &Url) -> Vec<(String, bool)> {
    let Ok((share, place)) = connection.reach(url).await else { return Vec::new() };
    let entries = share.list_dir(&place.path).await.unwrap_or_default();
    let kind = |entry: &frevo_client::DirEntry| walk::kind(entry.metadata()) == Kind::Directory;
    entries.iter().map(|entry| (entry.file_name().to_owned(), kind(entry))).collect()
}
