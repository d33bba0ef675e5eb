//! The services of a server.

use crate::announcement::Announcement;

/// A service of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Service {
    /// The type, such as `_smb._tcp`.
    pub(super) kind: &'static str,
    pub(super) port: u16,
    /// Names and values of the TXT record.
    pub(super) text: Vec<(String, String)>,
}

/// The port of a service that is a note only: that of discard.
const DISCARD: u16 = 9;

/// The services of a server: SMB, the icon, and the volumes for Time Machine.
pub(super) fn services(announcement: &Announcement) -> Vec<Service> {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let smb = Service { kind: "_smb._tcp", port: announcement.port, text: Vec::new() };
    let model = vec![pair("model", &announcement.model)];
    let mut all = vec![smb, Service { kind: "_device-info._tcp", port: DISCARD, text: model }];
    if !announcement.time_machine.is_empty() {
        // The flags 0x82 are those that Apple's servers announce for a Time Machine volume over SMB
        // without AFP.
        let mut text = vec![pair("sys", "waMa=0,adVF=0x100")];
        for (at, share) in announcement.time_machine.iter().enumerate() {
            text.push(pair(&format!("dk{at}"), &format!("adVN={share},adVF=0x82")));
        }
        all.push(Service { kind: "_adisk._tcp", port: DISCARD, text });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_for_time_machine_are_announced() {
        let mut announcement = crate::announcement::example();
        assert_eq!(services(&announcement).len(), 2);
        announcement.time_machine = vec![String::from("backups"), String::from("more")];
        let all = services(&announcement);
        let disks = all.iter().find(|service| service.kind == "_adisk._tcp").unwrap();
        let disk = |at: usize| disks.text.get(at).map(|(name, value)| format!("{name}={value}"));
        assert_eq!(disk(0).unwrap(), "sys=waMa=0,adVF=0x100");
        assert_eq!(disk(2).unwrap(), "dk1=adVN=more,adVF=0x82");
        assert_eq!(all.first().map(|smb| (smb.kind, smb.port)), Some(("_smb._tcp", 445)));
    }
}
