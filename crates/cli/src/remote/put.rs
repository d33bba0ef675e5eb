//! `put`: uploads files of this machine.

use std::path::{Path, PathBuf};

use frevo_mount::names::{Spelling, to_wire};

use super::arguments::Put;
use super::connection_options::Connection;
use super::copy_plan::{CopyPlan, Selection};
use super::endpoint::Endpoint;
use super::failures::Failures;
use super::location::Url;
use super::logon::failed;
use super::name_collisions::Case;
use super::overlap::Ends;
use super::report::planned;
use super::spelling;
use super::target::is_remote_directory;
use super::transfer::{self, CopyOptions};
use super::walk;
use crate::exit::{Done, Exit, Failure};

pub(crate) async fn put(put: &Put) -> Done {
    let from: Vec<&Path> = put.from.iter().map(PathBuf::as_path).collect();
    let quiet = put.connection.json || put.dry_run;
    let options = CopyOptions::new(expected(&from), quiet, &put.copying).forced(put.force);
    let selection = Selection {
        recursive: put.recursive,
        dry_run: put.dry_run,
        update: put.update,
        links: put.copying.links,
        filter: &put.filter,
    };
    upload(&from, &put.url, selection, &put.connection, options).await
}

/// The bytes that are expected before the sources were looked at: unknown for standard input.
pub(crate) fn expected(from: &[&Path]) -> Option<u64> {
    (!from.contains(&Path::new("-"))).then_some(0)
}

/// Uploads all of `from`; `-` is standard input.
pub(crate) async fn upload(
    from: &[&Path],
    url: &Url,
    selection: Selection<'_>,
    connection: &Connection,
    options: CopyOptions,
) -> Done {
    let input = Path::new("-");
    let is_stream = from.contains(&input);
    if is_stream && connection.password_stdin {
        let text = "standard input cannot be both the file and the password; use --credentials";
        return Err(Failure::new(Exit::Usage, text));
    }
    let (share, url) = &connection.reach(url).await?;
    let into = is_remote_directory(share, url, from.len(), selection.dry_run).await?;
    if is_stream && into {
        let text = format!("{url} is a directory; add the name of the file");
        return Err(Failure::new(Exit::Usage, text));
    }
    let mut failures = Failures::default();
    let mut plan = CopyPlan::new(selection, Case::Same);
    for from in from {
        if *from == input && selection.dry_run {
            planned(connection.json, "copy", &spelling::shown(&url.path));
        } else if *from == input {
            let sent = transfer::up_from_input(share, &url.path, &options).await;
            failures.note_done(sent.map_err(failed))?;
        }
    }
    let files: Vec<&Path> = from.iter().copied().filter(|from| *from != input).collect();
    let ends = async |from: &&Path| {
        let name = wire_leaf(from)?;
        let to = if into { url.below(&name) } else { url.path.clone() };
        let to = Endpoint::Remote(share.clone(), to);
        Ok(Ends::new(Endpoint::Local(from.to_path_buf()), to))
    };
    plan.add_all(&files, ends, &options, &mut failures).await?;
    plan.carry_out(connection, &options, failures).await
}

/// The last name of a local path, as the wire spells it.
fn wire_leaf(from: &Path) -> Result<String, Failure> {
    let shown = from.display();
    let found = std::fs::metadata(from).map_err(walk::local_failed(from))?;
    if !(found.is_file() || found.is_dir()) {
        // This is a pipe, socket or device. Opening a pipe without a writer would block for ever,
        // so it is refused.
        let text = format!(
            "{shown} is not a file but a pipe, a socket or a device, which is not copied; to send \
             what can be read from it, run: frevo put - URL < {shown}"
        );
        return Err(Failure::new(Exit::Failed, text).of("read", shown));
    }
    // The path `.` has no name of its own, so the name of the directory that it means is used.
    let whole = if from.file_name().is_none() { from.canonicalize().ok() } else { None };
    let named = whole.as_deref().unwrap_or(from);
    named.file_name().and_then(|name| to_wire(name, Spelling::Mapped)).ok_or_else(|| {
        let text = format!("{shown}: the name is not UTF-8, which SMB requires; rename it");
        Failure::new(Exit::Failed, text).of("read", shown)
    })
}
