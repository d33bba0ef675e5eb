//! The capabilities that TREE_CONNECT answers: MS-SMB2 3.3.5.7, 2.2.10.

use crate::client::*;
use crate::nodes::*;
use frevo_wire::command::tree_connect::{
    Response, ShareCapabilities as Caps, ShareType, TreeConnectFlags as Flags,
};

fn all_of(caps: &[Caps]) -> u32 {
    caps.iter().fold(0, |all, one| all | one.0)
}

/// The capabilities of a share for a client of a dialect that can be redirected.
fn expected(dialect: Dialect, share: &str) -> u32 {
    let is_smb3 = dialect >= Dialect::SMB_3_0;
    let is_continuous = ["lasting", "moving", "own"].contains(&share);
    let mut caps = Vec::new();
    if is_smb3 && is_continuous {
        caps.push(Caps::CONTINUOUS_AVAILABILITY);
    }
    match share {
        "own" | "IPC$" => {}
        _ if !is_smb3 => {}
        "moving" => caps.push(Caps::CLUSTER),
        _ => {
            caps.extend([Caps::CLUSTER, Caps::SCALEOUT]);
            if dialect >= Dialect::SMB_3_0_2 {
                caps.push(Caps::ASYMMETRIC);
            }
            if dialect == Dialect::SMB_3_1_1 {
                caps.push(Caps::REDIRECT_TO_OWNER);
            }
        }
    }
    all_of(&caps)
}

#[test]
fn capabilities_are_those_of_the_share_and_the_dialect() {
    cluster(async |cluster| {
        let node = cluster.n1_serving().await;
        for dialect in DIALECTS {
            for share in ["lasting", "plain", "moving", "own", "IPC$"] {
                let reply = Asking::of(dialect, share, Flags::REDIRECT_TO_OWNER).at(&node).await;
                let answer = Response::parse(&reply.unwrap().ok().message).unwrap();
                let wanted = expected(dialect, share);
                assert_eq!(answer.capabilities.0, wanted, "{dialect:?} {share}");
                let is_disk = answer.share_type == ShareType::DISK;
                assert_eq!(is_disk, share != "IPC$");
                // Without the flag the client cannot be redirected.
                let reply = Asking::of(dialect, share, Flags::EMPTY).at(&node).await;
                let answer = Response::parse(&reply.unwrap().ok().message).unwrap();
                let wanted = wanted & !Caps::REDIRECT_TO_OWNER.0;
                assert_eq!(answer.capabilities.0, wanted, "{dialect:?} {share}");
            }
        }
        let all = all_of(&[
            Caps::CONTINUOUS_AVAILABILITY,
            Caps::CLUSTER,
            Caps::SCALEOUT,
            Caps::ASYMMETRIC,
            Caps::REDIRECT_TO_OWNER,
        ]);
        assert_eq!((expected(Dialect::SMB_3_1_1, "lasting"), all), (0x1F0, 0x1F0));
    });
}
