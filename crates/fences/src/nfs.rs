//! `nfs`: the state of a client of this host's NFS server, which nfsd can end
//! (`/proc/fs/nfsd/clients/N/{info,ctl}`, Linux 5.3).
//!
//! nfsd tells its clients to its own host alone, so the node that fences must be the NFS server. After the
//! end the client's opens are unknown: NFS4ERR_EXPIRED for what is under way. Linux opens files without
//! locks again by itself, so a late write to such a file is not refused.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use frevo_cluster::fence::Fence;

use crate::fault::FenceFault;
use crate::limits::ENTRIES;
use crate::mounts::{Mount, read};

/// The folder of the clients, one folder for each.
const CLIENTS: &str = "/proc/fs/nfsd/clients";

/// Returns the client that mounted the file system in which `folder` is.
pub(crate) fn identity(folder: &Path) -> Result<Fence, FenceFault> {
    let name = folder.display();
    let mount = Mount::of(folder)?;
    if mount.kind != "nfs4" {
        return Err(FenceFault(format!(
            "{name} is no NFS file system of version 4; use another `fence`"
        )));
    }
    let address = |option| mount.option(option).and_then(|text| text.parse::<IpAddr>().ok());
    let (Some(server), Some(client)) = (address("addr"), address("clientaddr")) else {
        return Err(FenceFault(format!("the addresses of the NFS mount {name} are not known")));
    };
    if !is_of_this_host(server) {
        return Err(elsewhere(&server.to_string()));
    }
    let client = number_of(Path::new(CLIENTS), client)?;
    Ok(Fence::Nfs { server: server.to_string(), client })
}

/// Ends the state of a client. One that does not exist has none.
pub(crate) fn fence(server: &str, client: u64) -> Result<(), FenceFault> {
    if !server.parse().is_ok_and(is_of_this_host) {
        return Err(elsewhere(server));
    }
    expire(Path::new(CLIENTS), client)
}

/// `expire` returns when the client's state has gone.
fn expire(clients: &Path, client: u64) -> Result<(), FenceFault> {
    let file = clients.join(client.to_string()).join("ctl");
    let ended = OpenOptions::new().write(true).open(&file);
    match ended.and_then(|mut file| file.write_all(b"expire\n")) {
        Ok(()) => Ok(()),
        // ENXIO: the client's state is ending.
        Err(error) if error.raw_os_error() == Some(6) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound && clients.is_dir() => Ok(()),
        Err(error) => Err(FenceFault::of(file.display(), error)),
    }
}

/// The client with this address.
fn number_of(clients: &Path, address: IpAddr) -> Result<u64, FenceFault> {
    let failed = |error| FenceFault::of(clients.display(), error);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(clients).map_err(failed)?.take(ENTRIES) {
        let entry = entry.map_err(failed)?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A client may go while it is looked at.
        let Ok(info) = read(entry.path().join("info")) else { continue };
        if address_of(&info) == Some(address) {
            found.push(number);
        }
    }
    match found.as_slice() {
        [number] => Ok(*number),
        [] => Err(FenceFault(format!("the NFS server knows no client with the address {address}"))),
        _ => Err(FenceFault(format!(
            "the NFS server has several clients with the address {address}; mount all exports with \
             one version of NFS, and none in a container"
        ))),
    }
}

/// The address in a client's `info`: `address: "192.0.2.7:890"`, and IPv6 in brackets.
fn address_of(info: &str) -> Option<IpAddr> {
    let line = info.lines().find_map(|line| line.strip_prefix("address: \""))?;
    let (address, _) = line.strip_suffix('"')?.rsplit_once(':')?;
    let address =
        address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    address.parse().ok()
}

/// A socket can be bound to the addresses of this host alone.
fn is_of_this_host(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

fn elsewhere(server: &str) -> FenceFault {
    FenceFault(format!(
        "the NFS server {server} is another machine, and tells its clients to itself alone; use \
         another `fence`, or none by hand"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As client_info_show of fs/nfsd/nfs4state.c writes it.
    fn info(address: &str) -> String {
        format!(
            "clientid: 0x4f3a2b1c00000001\naddress: \"{address}\"\nstatus: confirmed\nseconds from \
             last renew: 3\nname: \"Linux NFSv4.2 node-a\"\nminor version: 2\nImplementation domain: \
             \"kernel.org\"\ncallback state: UP\ncallback address: \"192.0.2.99:0\"\n"
        )
    }

    #[test]
    fn clients_are_found_by_their_addresses() {
        assert_eq!(address_of(&info("192.0.2.7:890")), "192.0.2.7".parse().ok());
        assert_eq!(address_of(&info("[2001:db8::7]:890")), "2001:db8::7".parse().ok());
        assert_eq!(address_of("clientid: 0x1\n"), None);
        let clients = tempfile::tempdir().unwrap();
        for (number, address) in [
            ("3", "192.0.2.7:890"),
            ("4", "192.0.2.8:1"),
            ("5", "192.0.2.9:1"),
            ("6", "192.0.2.9:2"),
        ] {
            std::fs::create_dir(clients.path().join(number)).unwrap();
            std::fs::write(clients.path().join(number).join("info"), info(address)).unwrap();
            std::fs::write(clients.path().join(number).join("ctl"), "").unwrap();
        }
        std::fs::create_dir(clients.path().join("states")).unwrap();
        let of = |address: &str| number_of(clients.path(), address.parse().unwrap());
        assert_eq!((of("192.0.2.7"), of("192.0.2.8")), (Ok(3), Ok(4)));
        for (address, words) in [("192.0.2.1", "no client"), ("192.0.2.9", "several clients")] {
            let fault = of(address).unwrap_err().to_string();
            assert!(fault.contains(words), "{fault}");
        }
        assert_eq!(expire(clients.path(), 4), Ok(()));
        let written = std::fs::read_to_string(clients.path().join("4/ctl")).unwrap();
        assert_eq!(written, "expire\n");
        assert_eq!(expire(clients.path(), 7), Ok(()), "it has gone");
        assert!(expire(Path::new("/no such folder"), 7).is_err());
    }

    #[test]
    fn a_server_elsewhere_cannot_be_asked() {
        let fault = fence("192.0.2.1", 7).unwrap_err().to_string();
        assert!(fault.starts_with("the NFS server 192.0.2.1 is another machine"), "{fault}");
        assert!(fence("nas", 7).is_err(), "names are no identities");
        assert!(is_of_this_host("127.0.0.1".parse().unwrap()));
    }
}
