//! The results of scans for viruses over a restart, in the state directory.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use frevo_server::scanning::{remember, remembered};

use super::plan::Plan;
use super::scan_connector;
use crate::exit::Failure;
use crate::state;

/// Largest file, bytes: as many results as some services have.
const FILE_BYTES: u64 = 64 << 20;

/// The file of the results, if the server keeps one.
pub(super) struct ScanResults(Option<PathBuf>);

impl ScanResults {
    /// Prepares scans before the server is confined: starts the process that connects with their services, and
    /// remembers the results of the run before.
    pub(super) fn prepare(plan: &Plan) -> Result<Self, Failure> {
        scan_connector::start(plan)?;
        let scans = plan.config.shares.iter().any(|share| share.scan.is_some());
        let file = (plan.has_state && scans)
            .then(|| state::dir_of(&plan.config).join(state::SCAN_RESULTS));
        let is_small = |file: &&PathBuf| {
            std::fs::metadata(file).is_ok_and(|there| there.is_file() && there.len() <= FILE_BYTES)
        };
        // Without results each file is scanned once more.
        let text = file.as_ref().filter(is_small).map(std::fs::read_to_string);
        if let Some(Ok(text)) = text {
            remember(&text);
        }
        Ok(Self(file))
    }
}

/// Keeps the results for the next run.
impl Drop for ScanResults {
    fn drop(&mut self) {
        let Some(file) = &self.0 else { return };
        let new = file.with_extension("new");
        if let Err(error) = write(&new).and_then(|()| std::fs::rename(&new, file)) {
            tracing::warn!(target: "frevo::scan", file = %file.display(), %error,
                "the results of scans for viruses are not kept");
        }
    }
}

/// Writes the results into a file of the server's user: whoever could change it could let a virus pass.
fn write(file: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(file)?.write_all(remembered().as_bytes())
}
