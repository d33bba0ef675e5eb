//! Security descriptors that are set on files.

use frevo_wire::command::set_info::InfoType;
use frevo_wire::dtyp::{
    AccessMask, Ace, AceFlags, Acl, SdControl, SecurityDescriptor, SecurityInformation, Sid,
};
use frevo_wire::file_id::FileId;

use super::draft::Draft;
use super::files::{Mount, Want, set_info_draft};
use super::peer::Peer;

/// A descriptor that has a DACL and nothing else.
pub fn list(aces: Vec<Ace>) -> SecurityDescriptor {
    SecurityDescriptor {
        control: SdControl::DACL_PRESENT,
        dacl: Some(Acl::new(aces)),
        ..SecurityDescriptor::default()
    }
}

/// Everybody may do that and no more.
pub fn everyone(mask: AccessMask) -> SecurityDescriptor {
    list(vec![Ace::allow(AceFlags::EMPTY, mask, Sid::EVERYONE)])
}

pub fn bytes(descriptor: &SecurityDescriptor) -> Vec<u8> {
    let mut bytes = Vec::new();
    descriptor.encode(&mut bytes).unwrap();
    bytes
}

/// SET_INFO of the DACL.
pub fn protect_draft(file: FileId, new: &SecurityDescriptor) -> Draft {
    let dacl = SecurityInformation::DACL.0;
    set_info_draft(file, InfoType::SECURITY, 0, dacl, &bytes(new))
}

/// Sets the DACL of what `want` opens for it; the file keeps its owner.
pub async fn protect(peer: &mut Peer, mount: &Mount, want: &Want, new: &SecurityDescriptor) {
    let file = peer.open_file(mount, want).await;
    peer.on(mount, protect_draft(file, new)).await.ok();
    peer.close(mount, file).await;
}
