//! The fences of this machine's own mounts, which `frevo cluster check` tries as the node would.

use std::time::Duration;

use frevo_config::Config;
use frevo_fences::hands::{SetUp, UnitSetUp};
use frevo_fences::{Fences, Kind};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::judged::{Judged, fault, warning};
use crate::configured::cluster as configured;

/// Time for all folders of one unit. A file system that is refused or lost may never answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Finds the units whose `fence` this machine's mounts and keyrings do not suit.
pub(super) async fn of_fences(config: &Config) -> Vec<Judged> {
    // A configuration that cannot be used has other findings.
    let SetUp { units, .. } = configured::set_up(config).unwrap_or_default();
    let units: Vec<_> = units.into_iter().filter(|unit| can_look(unit.kind)).collect();
    if !units.is_empty() && !rustix::process::geteuid().is_root() {
        let text = "the fences of shares were not looked at: only root reaches them";
        return vec![warning(text)];
    }
    let mut found = Vec::new();
    for unit in units {
        found.extend(of_unit(unit).await);
    }
    found
}

/// True for a fence that can be looked at without changing anything: a look at a disk registers with it.
const fn can_look(kind: Kind) -> bool {
    match kind {
        Kind::Fuse | Kind::Nfs | Kind::Ceph => true,
        Kind::None | Kind::ScsiPr => false,
    }
}

async fn of_unit(unit: UnitSetUp) -> Option<Judged> {
    let name = unit.name.clone();
    let (sender, looked) = oneshot::channel();
    // A thread that the end of the program does not wait for.
    let begun = std::thread::Builder::new().spawn(move || sender.send(look(&unit)));
    let why = match (begun, timeout(PATIENCE, looked).await) {
        (Ok(_), Ok(Ok(Ok(found)))) => return found.map(warning),
        (Ok(_), Ok(Ok(Err(why)))) => why,
        (Err(error), _) => format!("it was not looked at: {error}"),
        (Ok(_), Ok(Err(_)) | Err(_)) => String::from("it does not answer"),
    };
    Some(fault(format!("this node cannot use the storage of {name}: {why}")))
}

/// Looks at the folders of a unit; returns a warning about storage that can be used.
fn look(unit: &UnitSetUp) -> Result<Option<String>, String> {
    let fences = Fences::open(|kind| kind == unit.kind, None).map_err(|why| why.to_string())?;
    for folder in &unit.folders {
        fences.identity(folder, unit.kind).map_err(|why| why.to_string())?;
    }
    Ok(unit.folders.iter().find_map(|folder| fences.warning(folder, unit.kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(fence: &str, path: &str) -> Config {
        let text = format!(
            "[cluster]\nname = \"c\"\nendpoints = [\"http://127.0.0.1\"]\naddresses = [\"192.0.2.20/24\"]\n\
             [[share]]\nname = \"docs\"\npath = {path:?}\ncluster = true\nfence = \"{fence}\"\n"
        );
        Config::parse(&text).unwrap()
    }

    #[tokio::test]
    async fn a_mount_that_does_not_suit_its_fence_is_told() {
        if !rustix::process::geteuid().is_root() {
            let found = of_fences(&config("ceph", "/proc")).await;
            return assert!(!found[0].is_fault && found[0].text.contains("only root"));
        }
        for (fence, why) in [
            ("ceph", "/proc is no CephFS; use another `fence`"),
            ("fuse", "/proc is no FUSE file system; use another `fence`"),
        ] {
            let found = of_fences(&config(fence, "/proc")).await;
            let text = format!("this node cannot use the storage of docs: {why}");
            assert_eq!(found, [fault(text)]);
        }
        for fence in ["none", "scsi-pr"] {
            assert!(of_fences(&config(fence, "/proc")).await.is_empty(), "{fence}");
        }
    }
}
